/** What a run of the lab may be, by name: the hostile trees, which stay, and commands that end by themselves. */

import { hostileTrees } from '../../../__test__/support/hostile-trees.mjs'

/**
 * @typedef Command
 * @property {string} name
 * @property {(witness: string) => [string, string[]]} command
 * @property {number} ready           as in hostile-trees.mjs, like the next two; 0: it does not say when it stands
 * @property {number} left
 * @property {boolean} traceable
 * @property {boolean} needsInput     it leaves at the end of its stdin, whatever that is
 * @property {string} [ends]          the reason for which it ends by itself
 * @property {number} [says]          so many bytes, for which somebody has to read them
 */

const trees = hostileTrees.map((tree) => ({ ...tree, needsInput: /^(?:sh|bash|npx)/.test(tree.name) }))

const brief = (name, ends, command, ...args) => ({
  name,
  ends,
  command: () => [command, args],
  ready: 0,
  left: 0,
  traceable: true,
  needsInput: false,
})

/** @type {Command[]} */
export const commands = [
  ...trees,
  brief('exits with 0', 'exit', 'true'),
  brief('exits with 7', 'exit', 'sh', '-c', 'exit 7'),
  brief('kills itself', 'signal', 'sh', '-c', 'kill -9 $$'),
  { ...brief('says a megabyte', 'exit', 'head', '-c', '1000000', '/dev/zero'), says: 1_000_000 },
  brief('no such command', 'spawn-error', '/nonexistent/command'),
]

export const commandNamed = (name) => commands.find((command) => command.name === name)
