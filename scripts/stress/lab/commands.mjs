/**
 * The commands that the lab runs, by name: hostile trees, which stay, and commands that end by
 * themselves.
 */

import { program } from '../../../__test__/support/fixtures.mjs'
import { hostileTrees } from '../../../__test__/support/hostile-trees.mjs'

/**
 * @typedef Command
 * @property {string} name
 * @property {(witness: string) => [string, string[]]} command
 * @property {number} ready
 *   as in hostile-trees.mjs, like the next two; 0: it does not report that it is ready
 * @property {number} left
 * @property {boolean} traceable
 * @property {boolean} [diesOfSigterm]  its long grace period must not elapse
 * @property {boolean} needsInput     it exits at the end of its stdin
 * @property {boolean} [isVast]       it uses thousands of PIDs
 * @property {string} [ends]          the reason with which it ends by itself
 * @property {number} [says]          the number of bytes that it writes; the bot must read them
 */

const trees = hostileTrees.map((tree) => ({ ...tree, needsInput: /^(?:sh|bash|npx)/.test(tree.name) }))

/** More children than one read of the kernel's list of children returns. */
const THOUSANDS = 4000

const more = [
  { name: 'born-while-ending', ready: 4, left: 1 },
  { name: 'thousands', args: [String(THOUSANDS)], ready: THOUSANDS + 1, left: THOUSANDS / 2, isVast: true },
].map(({ name, args = [], ...tree }) => ({
  name,
  command: (witness) => [program(name), [witness, ...args]],
  diesOfSigterm: true,
  traceable: true,
  needsInput: false,
  ...tree,
}))

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
  ...more,
  brief('exits with 0', 'exit', 'true'),
  brief('exits with 7', 'exit', 'sh', '-c', 'exit 7'),
  brief('kills itself', 'signal', 'sh', '-c', 'kill -9 $$'),
  { ...brief('says a megabyte', 'exit', 'head', '-c', '1000000', '/dev/zero'), says: 1_000_000 },
  brief('no such command', 'spawn-error', '/nonexistent/command'),
]

export const commandNamed = (name) => commands.find((command) => command.name === name)
