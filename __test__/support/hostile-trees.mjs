// The hostile trees, one row each. A row contains what the tests expect.
import { program, script } from './fixtures.mjs'
import { forScripts, isLinux, isMacos, isWindows, NO_PROC, NO_STOPPING, NO_SUBREAPER } from './system.mjs'

/**
 * @typedef HostileTree
 * @property {string} name
 * @property {(witness: string) => [string, string[]]} command
 * @property {number} ready        processes that mark themselves ready; the tree is ready when all have
 * @property {number} left         processes outside the root's session; Infinity: new ones all the time
 * @property {boolean} diesOfSigterm   SIGTERM and SIGCONT to every process suffice
 * @property {boolean} traceable   every process keeps its group or its environment, and lives long enough to be found
 * @property {'stdin' | 'SIGKILL'} rootLeaves   what makes only the root exit
 * @property {string} [posix]      why there is no such tree on Windows
 * @property {string} [linux]      why there is none on macOS
 */

const polite = { left: 0, diesOfSigterm: true, traceable: true, rootLeaves: 'stdin' }
const hydra = {
  ...polite,
  ready: 2,
  left: Infinity,
  diesOfSigterm: false,
  traceable: false,
  linux: NO_SUBREAPER,
}
const fixture = (name, ...more) => ({ name, command: (witness) => [program(name), [witness, ...more]] })

// The shells hold the witness as fd 3. They exit at the end of their stdin, before their children.
const inBackground = 'exec 3>"$2"; "$1" "$2" & read -r _; exit 0'
const inBackgroundAtOnce = 'exec 3>"$2"; "$1" "$2" & '
const shell = (command, flag, line) => (witness) => [
  command,
  [flag, line, command, program('stays'), witness],
]
/** Without the user's profile: it may start anything, and leave a lock when it is killed. */
const loginShell = (line) => (witness) => {
  const [command, args] = shell('bash', '-lc', line)(witness)
  return isWindows ? [command, args] : ['env', ['HOME=/nonexistent', command, ...args]]
}
const npxLike = (when) => (witness) => [
  process.execPath,
  [...forScripts, script('npx-like.mjs'), witness, when, program('stays')],
]

/** @type {HostileTree[]} */
const allTrees = [
  { ...polite, ...fixture('tree-of-100'), ready: 100 },
  { ...polite, ...fixture('half-setsid'), ready: 33, left: 16 },
  { ...polite, ...fixture('double-fork-daemon'), ready: 2, left: 1 },
  { ...polite, ...fixture('cleared-environment'), ready: 2, left: 1, traceable: false, linux: NO_SUBREAPER },
  { ...hydra, ...fixture('hydra') },
  { ...hydra, ...fixture('hydra', '500'), name: 'hydra with heads that live 500 µs' },
  { ...polite, ...fixture('ignores-sigterm'), ready: 2, diesOfSigterm: false },
  { ...polite, ...fixture('forks-on-sigterm'), ready: 4, diesOfSigterm: false },
  { ...polite, ...fixture('stopped'), ready: 2, rootLeaves: 'SIGKILL', posix: NO_STOPPING },
  { ...polite, ...fixture('confusing-comm'), ready: 3, left: 1, posix: NO_PROC, linux: NO_PROC },
  { ...polite, ...fixture('main-thread-exited'), ready: 3, left: 1, linux: NO_PROC },
  { ...polite, name: "sh -c 'x &'", command: shell('sh', '-c', inBackground), ready: 1 },
  { ...polite, name: "bash -lc 'x &'", command: loginShell(inBackground), ready: 1 },
  { ...polite, name: 'npx-like wrapper', command: npxLike('at-stdin-end'), ready: 1 },
]

/** Why this system does not have the tree. */
export function whyMissing({ posix, linux }) {
  if (isLinux) return undefined
  return isWindows ? posix : linux
}

export const hostileTrees = allTrees.filter((tree) => !whyMissing(tree))

/** Trees that this system does not have, for tests that report them as skipped. */
export const missingTrees = allTrees.filter(whyMissing).map((tree) => ({ ...tree, why: whyMissing(tree) }))

/** Wrappers that exit before their child is ready. */
export const hastyWrappers = [
  { name: "sh -c 'x &'", command: shell('sh', '-c', inBackgroundAtOnce) },
  { name: "bash -lc 'x &'", command: loginShell(inBackgroundAtOnce) },
  { name: 'npx-like wrapper', command: npxLike('at-once') },
]

/** The options of a test of one tree. */
export const treeOptions = (tree, options = {}) => ({ ...options, skip: whyMissing(tree) ?? false })

/** The tree with the fewest traces that this system can still follow reliably. */
export const elusiveTree = () => treeNamed(isMacos ? 'double-fork-daemon' : 'cleared-environment')

export const treeNamed = (name) => allTrees.find((tree) => tree.name === name)
