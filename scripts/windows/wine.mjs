// A Windows of our own: a Wine prefix with what Rust and Node need, and its server for as long as the tests run.
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
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
  // Errors only: they say why Wine has refused something, in the log of a test's stderr.
  WINEDEBUG: process.env.WINEDEBUG ?? 'fixme-all',
  // No windows, nor anything that would ask in one: no display, no offer to install Mono or Gecko, no debugger after a crash.
  DISPLAY: '',
  WAYLAND_DISPLAY: '',
  WINEDLLOVERRIDES: 'mscoree=;mshtml=;winedbg.exe=',
}

/**
 * What every program in Wine is started with, and passes on: addresses are not random. Wine's loader lies at a fixed one, a little below that of a
 * page which every Windows process has (0x7ffe0000). Its heap begins behind it, with newer kernels anywhere within a gigabyte, and so once in
 * some thousand times on that very page. Then the process ends before it begins (“failed to map the shared user data”), and whoever has started it
 * hears of an error that has no name (1359).
 */
const atFixedAddresses = mayFixAddresses() ? ['setarch', '-R'] : []

/** The command line that runs a Windows program in Wine so that nothing is left of it, see launch.c. */
export const launcher = [...atFixedAddresses, 'wine', windowsPath(launch)]

/** To be called before anything else here. */
export function startWine() {
  mkdirSync(made, { recursive: true })
  compile(source('launch.c'), launch)
  // It stays between two programs, which saves half a second for each. If we are killed it leaves by itself.
  removeIfUnfinished()
  inPrefix('wineserver', '-p60')
  if (!isReady()) makePrefix()
  // The first program has the services started.
  inPrefix('wine', 'cmd', '/c', 'exit 0')
}

/** Ends every process in the prefix, and waits for that. */
export function stopWine() {
  for (const how of ['-k', '-w'])
    spawnSync('wineserver', [how], { env: wineEnvironment, stdio: 'ignore', timeout: 20_000 })
}

/** A prefix that was not finished, or not by this recipe, is made anew. */
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
  console.error('`setarch -R` is refused here: now and then Wine is going to fail to start a process')
  return false
}

/** Without our streams: the services that Wine starts hold what they are given, and who reads a pipe of theirs waits for them. */
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
  // Node refuses what Wine pretends to be by default.
  inPrefix('wine', 'winecfg', '-v', 'win10')
  const library = join(made, 'bcryptprimitives.dll')
  compile(source('bcryptprimitives.c'), library, '-shared', '-ladvapi32')
  copyFileSync(library, join(prefix, 'drive_c', 'windows', 'system32', 'bcryptprimitives.dll'))
  writeFileSync(ready, recipe())
}

/** A new empty folder on drive C, as Windows names it. */
export function freshFolder(name) {
  const folder = join(prefix, 'drive_c', 'spawn-owned-test', name)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  return `C:\\spawn-owned-test\\${name}`
}
