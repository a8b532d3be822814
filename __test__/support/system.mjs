// What the tests need to know about the system. They use POSIX commands (`sh -c`, `cat`, SIGTERM).
// On Windows these commands are small programs of ours (fixtures/windows), first in the PATH of
// this process and its children.
import { rmSync } from 'node:fs'
import { delimiter } from 'node:path'
import * as runner from 'node:test'
import { fileURLToPath } from 'node:url'

export const isWindows = process.platform === 'win32'
export const isMacos = process.platform === 'darwin'
export const isLinux = process.platform === 'linux'

/** Bun and Deno also report that they are Node. */
export const isNode = !('bun' in process.versions || 'deno' in process.versions)

const isDeno = 'deno' in process.versions

/**
 * Arguments before the name of a script when this runtime is the command. Deno's own child_process
 * adds them automatically.
 */
export const forScripts = isDeno ? ['run', '--allow-all', '--node-modules-dir=manual'] : []

/** Wine counts as Windows, except for what it does not support. */
export const isWine = isWindows && 'WINEUSERNAME' in process.env

/** Why a test is left out in Bun and Deno, or only in Deno. */
export const NO_CHANNELS = 'only Node has IPC channels that a command can use'
export const NOT_NODES = "the test compares with Node's own child_process"
export const NO_FIFO_STREAMS = 'only Node can make a stream of a FIFO'
export const NO_WORKERS_END = 'Deno does not notify an addon of the end of a worker'
export const NO_ORDER = 'Deno may report an exit before it has read the output'
export const OTHER_ARGUMENTS = 'Deno needs other arguments than Node for code and scripts'
export const NO_WAITING = 'the test runner of Deno does not wait for the cleanup of the previous test'
export const NO_GROUPS = 'Deno has no process.setgroups'

/** Why a test is left out on Windows, or on every system except Linux. */
export const NO_SIGNALS = 'Windows has only termination and CTRL_BREAK instead of signals'
export const NO_SESSIONS = 'Windows has no POSIX sessions or process groups'
export const NO_KEEPER = 'Windows has no keeper process: the job is held by the bot'
export const NO_PROC = 'only Linux has /proc, which this test reads'
export const NO_CGROUPS = 'only Linux has cgroups'
export const NO_USERS = 'Windows has neither uid nor gid nor file modes'
export const NO_FIFOS = 'Windows has no FIFOs'
export const NO_SHELL = 'the test shell for Windows does not support this command line'
export const NO_NAMESPACES = 'only Linux has PID namespaces'
export const NO_GONE_DIRECTORY = 'Windows does not remove the working directory of a process'
export const NO_ZOMBIES = 'Windows has no zombies'
export const NO_DESCRIPTOR_LIMIT = 'Windows has no limit of open files per process'
export const ENDS_WITH_PARENT =
  'on Windows a child of child_process ends with its parent, unless it is detached'
export const NO_PTY_WITHOUT_BOT = 'on Windows no process of a run with a terminal survives its bot'
export const NO_TTY =
  'Windows has consoles instead of terminals: no tty, no stty, and the console redraws output'
export const NO_INTERPRETERS = 'Windows has no interpreter lines (#!)'
export const NOT_FROM_OUTSIDE = 'on Windows another process cannot send CTRL_BREAK: it needs a shared console'
export const WINE_CANNOT_ASK = 'Wine has no CTRL_BREAK, so there is no graceful termination'
export const WINE_TAKES_ANY_LENGTH = 'Wine starts command lines of any length'
export const WINE_LETS_SLIP = 'in Wine a process survives that is being created while its job is closed'
export const WINE_ECHOES_LINES = 'Wine echoes input per line, not per key'
/** Seen with a debugger: SIGSEGV in wineserver 8, always at one address. Then every program hangs. */
export const WINE_SERVER_CRASHES = 'the server of Wine crashes if a job ends while its process starts'
export const WINE_CONNECTS_NO_STREAMS =
  "Wine does not connect a command's standard streams with its pseudo-console"
export const WINE_KEEPS_NO_LIMITS = 'Wine neither enforces nor reports the limits of a job'
export const WINE_COUNTS_NO_TIME = 'Wine does not count the CPU time of a job'
export const NO_SOCKETS = 'on Windows Node cannot pass a TCP connection to a command'
export const NO_SENT_PIPES = 'on Windows Node cannot send a pipe over an IPC channel'
export const NO_PIDFDS = 'only Linux has pidfds, and a fallback for them'
export const NO_LINKS = 'on Windows a symbolic link needs a privilege'
export const NO_MOUNTS = 'the test mounts a small disk, in a way that only Linux supports'
export const NO_STOPPING = 'Windows has no signal that stops a process; suspended ones are in windows-trees'
export const NO_SUBREAPER =
  'only Linux has subreapers; macOS cannot find a process that left its session, lost its parent unseen and has no cookie'
export const NO_PRELOADING = 'the test preloads a library, in a way that only Linux supports'
export const NO_TIME_OF_THE_DEAD = 'macOS does not report the CPU time of a process that has exited'
export const NO_REAL_TIME = 'only Linux has real-time signals'
export const NO_SETSID = 'only Linux has the setsid command'

/** Options of a test that has no meaning on Windows, for this reason. */
export const posixOnly = (reason, options = {}) => ({ ...options, skip: isWindows && reason })

/** Options of a test that has a meaning only on Linux, for this reason. */
export const linuxOnly = (reason, options = {}) => ({ ...options, skip: !isLinux && reason })

/** Options of a test that has no meaning on macOS, for this reason. */
export const notOnMacos = (reason, options = {}) => ({ ...options, skip: isMacos && reason })

/** Options of a test that needs root for this, in addition to the reasons in `options`. */
export const rootOnly = (what, options = {}) => ({
  ...options,
  skip: options.skip || (process.getuid?.() !== 0 && `needs root, ${what}`),
})

/** Keepers are not dumpable, so only root can read this. */
export const KEEPERS_ENVIRONMENT = 'to read the environment of a keeper'

/** Options of a test of something that only Node has, for this reason. */
export const nodeOnly = (reason, options = {}) => unless(!isNode, reason, options)

/** Options of a test of something that Deno lacks, for this reason. */
export const notInDeno = (reason, options = {}) => unless(isDeno, reason, options)

/** Options of a test of something that Bun lacks, for this reason. */
export const notInBun = (reason, options = {}) => unless('bun' in process.versions, reason, options)

/** Prints the reason, because the test runners of Bun and Deno do not. */
function unless(isLacking, reason, options) {
  if (!isLacking || !reason) return options
  console.log(`# skipped here: ${reason}`)
  return { ...options, skip: reason }
}

/**
 * Options of a test of something that Wine lacks, or that child_process itself cannot do in Wine,
 * for this reason.
 */
export const notUnderWine = (reason, options = {}) => ({
  ...options,
  skip: isWine ? reason : (options.skip ?? false),
})

/** The functions of node:test for a file that has no meaning on Windows, for this reason. */
export const posixTests = (reason) => (isWindows ? skippedTests(reason) : runner)

/** The same for a file that has a meaning only on Linux. */
export const linuxTests = (reason) => (isLinux ? runner : skippedTests(reason))

/** The same for a file that cannot run under Wine. */
export const testsNotUnderWine = (reason) => (isWine ? skippedTests(reason) : runner)

function skippedTests(reason) {
  const skipped = (name) => runner.test(name, { skip: reason })
  return { describe: skipped, it: skipped, test: skipped, before() {}, after() {} }
}

/** Options of a test of something that only Windows has. */
export const windowsOnly = (options = {}) => ({
  ...options,
  skip: !isWindows && 'only Windows has job objects and consoles',
})

/**
 * A grace period for trees with members outside the group of their root. On Linux and macOS each
 * member gets SIGTERM, and the grace period does not elapse. On Windows these members get no
 * CTRL_BREAK, and are killed after it.
 */
export const GRACE_FOR_ALL_MS = isWindows ? 1000 : 1e8

/** The folder of the programs for Windows, with the commands among them. */
export const WINDOWS_PROGRAMS = fileURLToPath(new URL('../fixtures/bin/win32', import.meta.url))

/** The path of one of those commands, for a process with an empty PATH. */
export const windowsCommand = (name) => `${WINDOWS_PROGRAMS}\\commands\\${name}.exe`

if (isWindows) {
  const commands = `${WINDOWS_PROGRAMS}\\commands`
  if (!process.env.PATH.startsWith(commands)) process.env.PATH = commands + delimiter + process.env.PATH
}

/**
 * Removes a temporary folder. On Windows it stays if a process, for example this one, still has a
 * file in it open.
 */
export function removeFolder(folder) {
  try {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  } catch (error) {
    if (!isWindows) throw error
  }
}
