// What the tests need to know of the system they run on. They are written in the words of POSIX (`sh -c`, `cat`, SIGTERM); on
// Windows these commands are small programs of ours (fixtures/windows), first in the path of this process and so of its children.
import { rmSync } from 'node:fs'
import { delimiter } from 'node:path'
import * as runner from 'node:test'
import { fileURLToPath } from 'node:url'

export const isWindows = process.platform === 'win32'
export const isMacos = process.platform === 'darwin'
export const isLinux = process.platform === 'linux'

/** Bun and Deno say that they are Node as well. */
export const isNode = !('bun' in process.versions || 'deno' in process.versions)

const isDeno = 'deno' in process.versions

/** What comes before the name of a script when this runtime is a run's command. Deno's own child_process adds it unasked. */
export const forScripts = isDeno ? ['run', '--allow-all', '--node-modules-dir=manual'] : []

/** Wine is Windows, but for what it does not know. */
export const isWine = isWindows && 'WINEUSERNAME' in process.env

/** Why something is left out in Bun and Deno, or in Deno alone. */
export const NO_CHANNELS = 'only Node has channels that can be lent to a command'
export const NOT_NODES = "only Node's child_process is what ours is compared with"
export const NO_FIFO_STREAMS = 'only Node makes a stream of a FIFO'
export const NO_WORKERS_END = 'Deno does not tell an addon that a worker was ended'
export const NO_ORDER = 'Deno may tell of an exit before it has read what was written before that'
export const OTHER_ARGUMENTS = 'Deno takes code and scripts with other arguments than Node'
export const NO_WAITING = 'the runner of Deno does not wait for what the test before does at its end'
export const NO_GROUPS = 'Deno has no process.setgroups'

/** Why something is left out on Windows, or everywhere but on Linux. Each reason is the whole truth. */
export const NO_SIGNALS = 'Windows has no signals but the one that ends, and CTRL_BREAK'
export const NO_SESSIONS = 'Windows has neither sessions nor groups that could be left, or asked for'
export const NO_KEEPER = 'Windows has no keeper process: the job is held by the bot'
export const NO_PROC = 'only Linux has /proc, which this test reads'
export const NO_CGROUPS = 'only Linux has cgroups'
export const NO_USERS = 'Windows has neither uid nor gid nor file modes'
export const NO_FIFOS = 'Windows has no FIFOs'
export const NO_SHELL = 'the little shell for Windows does not know this line'
export const NO_NAMESPACES = 'only Linux has PID namespaces'
export const NO_GONE_DIRECTORY = 'on Windows the directory that somebody is in cannot be removed'
export const NO_ZOMBIES = 'Windows has no zombies'
export const NO_DESCRIPTOR_LIMIT = 'Windows has no limit of open files that a process could be given'
export const ENDS_WITH_PARENT =
  'what child_process starts on Windows ends with its parent, unless it is detached'
export const NO_PTY_WITHOUT_BOT = 'on Windows nothing of a run with a terminal outlives its bot'
export const NO_TTY = 'Windows has consoles instead of terminals: no tty, no stty, and output is drawn anew'
export const NO_INTERPRETERS = 'on Windows no file names its interpreter'
export const NOT_FROM_OUTSIDE =
  'on Windows nobody is asked to end from outside, which takes a console that both share'
export const WINE_CANNOT_ASK = 'Wine has no CTRL_BREAK: nobody can be asked to end, and no grace is granted'
export const WINE_TAKES_ANY_LENGTH = 'Wine starts command lines of any length'
export const WINE_LETS_SLIP =
  'Wine lets somebody slip who is being created at the very moment in which his job is closed'
export const WINE_ECHOES_LINES = 'Wine echoes what was typed when the line is complete, not each key'
export const WINE_CONNECTS_NO_STREAMS =
  "Wine does not connect a command's standard streams with its pseudo-console"
export const WINE_KEEPS_NO_LIMITS = 'Wine does not keep the limits of a job, nor tell them'
export const WINE_COUNTS_NO_TIME = 'Wine does not count the time that a job has used'
export const NO_SOCKETS = 'on Windows Node gives no TCP connection to a command'
export const NO_SENT_PIPES = 'on Windows Node sends no pipe over a channel'
export const NO_PIDFDS = 'only Linux has pidfds, and a fallback for them'
export const NO_LINKS = 'to make a symbolic link is a privilege on Windows'
export const NO_MOUNTS = 'a small disk is mounted for this test as only Linux does it'
export const NO_STOPPING = 'Windows has no signal that stops a process; suspended ones are in windows-trees'
export const NO_SUBREAPER =
  'only Linux has subreapers: elsewhere on Unix whoever leaves its session and loses its parent unseen, without the cookie, is not found'
export const NO_PRELOADING = 'a library is preloaded for this test as only Linux does it'
export const NO_TIME_OF_THE_DEAD = 'macOS does not tell how much time a process has used that is gone'
export const NO_REAL_TIME = 'only Linux has real-time signals'
export const NO_SETSID = 'only Linux has the setsid command'

/** The options of a test that has no meaning on Windows, for this reason. */
export const posixOnly = (reason, options = {}) => ({ ...options, skip: isWindows && reason })

/** The options of a test that has a meaning on Linux only, for this reason. */
export const linuxOnly = (reason, options = {}) => ({ ...options, skip: !isLinux && reason })

/** The options of a test that has no meaning on macOS, for this reason. */
export const notOnMacos = (reason, options = {}) => ({ ...options, skip: isMacos && reason })

/** The options of a test of something that only Node has, for this reason. */
export const nodeOnly = (reason, options = {}) => unless(!isNode, reason, options)

/** The same for what Deno alone has not. */
export const notInDeno = (reason, options = {}) => unless(isDeno, reason, options)

/** The same for Bun. */
export const notInBun = (reason, options = {}) => unless('bun' in process.versions, reason, options)

/** The test runners of Bun and Deno do not tell reasons, so it is said here. */
function unless(isLacking, reason, options) {
  if (!isLacking || !reason) return options
  console.log(`# skipped here: ${reason}`)
  return { ...options, skip: reason }
}

/** The options of a test of something that Wine does not have, or that child_process itself cannot do there, for this reason. */
export const notUnderWine = (reason, options = {}) => ({
  ...options,
  skip: isWine ? reason : (options.skip ?? false),
})

/** The functions of node:test for a file of which nothing has a meaning on Windows, for this reason. */
export const posixTests = (reason) => (isWindows ? skippedTests(reason) : runner)

/** The same for a file of which nothing has a meaning but on Linux. */
export const linuxTests = (reason) => (isLinux ? runner : skippedTests(reason))

/** The same for a file of which nothing can be had under Wine. */
export const testsNotUnderWine = (reason) => (isWine ? skippedTests(reason) : runner)

function skippedTests(reason) {
  const skipped = (name) => runner.test(name, { skip: reason })
  return { describe: skipped, it: skipped, test: skipped, before() {}, after() {} }
}

/** The options of a test about what only Windows has. */
export const windowsOnly = (options = {}) => ({
  ...options,
  skip: !isWindows && 'only Windows has job objects and consoles',
})

/**
 * A grace for trees with members that have left their root's group. Everywhere else each of them is asked to end, and nobody has to
 * wait; on Windows they cannot be asked, and are ended after this.
 */
export const GRACE_FOR_ALL_MS = isWindows ? 1000 : 1e8

/** Where the programs for Windows are, and the commands among them. */
export const WINDOWS_PROGRAMS = fileURLToPath(new URL('../fixtures/bin/win32', import.meta.url))

/** The path of one of those commands, for whoever has an empty PATH. */
export const windowsCommand = (name) => `${WINDOWS_PROGRAMS}\\commands\\${name}.exe`

if (isWindows) {
  const commands = `${WINDOWS_PROGRAMS}\\commands`
  if (!process.env.PATH.startsWith(commands)) process.env.PATH = commands + delimiter + process.env.PATH
}

/** A folder for a while. On Windows somebody may have something in it open to the last, us included: then it stays. */
export function removeFolder(folder) {
  try {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  } catch (error) {
    if (!isWindows) throw error
  }
}
