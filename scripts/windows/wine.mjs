// Our own Windows: a Wine prefix with what Rust and Node need, and its server while the tests run.
import { spawnSync } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { root, say } from '../tools.mjs'
import { made, windowsPath } from './places.mjs'
import { compile } from './toolchain.mjs'

const prefix = join(made, 'prefix')
const ready = join(prefix, 'ready')
const launch = join(made, 'launch.exe')
const source = (name) => join(root, 'scripts', 'windows', name)

export const wineEnvironment = {
  ...process.env,
  WINEPREFIX: prefix,
  // Errors only: they say in the stderr log of a test why Wine refused something.
  WINEDEBUG: process.env.WINEDEBUG ?? 'fixme-all',
  // No windows and no dialogs: no display, no offer to install Mono or Gecko, no debugger after a
  // crash.
  DISPLAY: '',
  WAYLAND_DISPLAY: '',
  WINEDLLOVERRIDES: 'mscoree=;mshtml=;winedbg.exe=',
}

/**
 * Every program in Wine runs without address randomization, and passes that on. Wine's loader has a
 * fixed address, slightly below a page that every Windows process has (0x7ffe0000). Its heap begins
 * after it, with newer kernels anywhere within a gigabyte. So once in some thousand starts the heap
 * lies on that page. Then the process fails to start (“failed to map the shared user data”), and
 * its parent gets an error without a name (1359).
 */
const atFixedAddresses = mayFixAddresses() ? ['setarch', '-R'] : []

/**
 * The command line that runs a Windows program in Wine and ends everything that it leaves, see
 * launch.c.
 */
export const launcher = [...atFixedAddresses, 'wine', windowsPath(launch)]

/** Call it before the other functions of this file. */
export function startWine() {
  mkdirSync(made, { recursive: true })
  compile(source('launch.c'), launch)
  removeIfUnfinished()
  startServer()
  if (!isReady()) {
    makePrefix()
    // The server writes the settings of the prefix when it exits. A crash would lose them.
    stopWine()
    startServer()
  }
  startServices()
}

/**
 * The server stays between two programs, which saves half a second for each. If this process is
 * killed, the server exits by itself.
 */
const startServer = () => inPrefix('wineserver', '-p60')

/** The first program starts them. */
const startServices = () => inPrefix('wine', 'cmd', '/c', 'exit 0')

let crashes = 0

/** How often the server has crashed. If it changes, the results of the programs meanwhile are void. */
export const serverCrashes = () => crashes

/**
 * Checks twice a second whether the server runs, and starts it again after a crash. Returns a
 * function that stops the checks.
 *
 * The server of Wine 8 crashes now and then (SIGSEGV, always at the same address) when a job ends
 * while its process starts. Then every program in Wine hangs. So all of them are killed.
 */
export function watchServer() {
  const timer = setInterval(() => {
    if (pidsInPrefix().some(isServer)) return
    crashes += 1
    for (const pid of pidsInPrefix()) kill(pid)
    startServer()
    startServices()
  }, 500)
  return () => clearInterval(timer)
}

const isServer = (pid) => textOf(pid, 'comm').startsWith('wineserver')

/** The processes whose environment names our prefix. */
function pidsInPrefix() {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.filter((pid) => textOf(pid, 'environ').split('\0').includes(`WINEPREFIX=${prefix}`))
}

/** A file of a process, or an empty text if the process is gone. */
function textOf(pid, file) {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return ''
  }
}

function kill(pid) {
  try {
    process.kill(Number(pid), 'SIGKILL')
  } catch (error) {
    if (error.code !== 'ESRCH') throw error
  }
}

/** Ends every process in the prefix, and waits for that. */
export function stopWine() {
  for (const how of ['-k', '-w'])
    spawnSync('wineserver', [how], { env: wineEnvironment, stdio: 'ignore', timeout: 20_000 })
}

/** Removes a prefix that is unfinished or was made by another version of this script. */
function removeIfUnfinished() {
  if (!isReady()) {
    stopWine()
    rmSync(prefix, { recursive: true, force: true })
  }
  mkdirSync(prefix, { recursive: true })
}

/** Some containers do not allow it. */
function mayFixAddresses() {
  if (spawnSync('setarch', ['-R', 'true']).status === 0) return true
  console.error('`setarch -R` is not permitted, so Wine will sometimes fail to start a process')
  return false
}

/**
 * Without our streams: Wine's services inherit them and stay, so a reader of such a pipe would wait
 * for the services.
 */
function inPrefix(...command) {
  const [program, ...args] = [...atFixedAddresses, ...command]
  const { status } = spawnSync(program, args, { env: wineEnvironment, stdio: 'ignore', timeout: 120_000 })
  if (status === 0) return
  console.error(`failed: ${command.join(' ')}`)
  process.exit(1)
}

const recipe = () =>
  readFileSync(source('wine.mjs'), 'utf8') + readFileSync(source('bcryptprimitives.c'), 'utf8')
const isReady = () => existsSync(ready) && readFileSync(ready, 'utf8') === recipe()

function makePrefix() {
  say('Making a Wine prefix')
  inPrefix('wineboot', '--init')
  // Node refuses the Windows version that Wine reports by default.
  inPrefix('wine', 'winecfg', '-v', 'win10')
  const library = join(made, 'bcryptprimitives.dll')
  compile(source('bcryptprimitives.c'), library, '-shared', '-ladvapi32')
  copyFileSync(library, join(prefix, 'drive_c', 'windows', 'system32', 'bcryptprimitives.dll'))
  writeFileSync(ready, recipe())
}

/** A new empty folder on drive C, as a Windows path. */
export function freshFolder(name) {
  const folder = join(prefix, 'drive_c', 'spawn-owned-test', name)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  return `C:\\spawn-owned-test\\${name}`
}
