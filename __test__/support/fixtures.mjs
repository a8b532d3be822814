// The paths of the fixture programs. Those in C are compiled on first use, and again when their
// source changes.
import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isWindows, WINDOWS_PROGRAMS } from './system.mjs'
import { buildWindowsPrograms } from './windows-programs.mjs'

const at = (relative) => fileURLToPath(new URL(`../fixtures/${relative}`, import.meta.url))
const compiled = new Map()

/** Where the addon of this system is built. */
export const addon = at(
  isWindows ? `../../native/win32-${process.arch}/spawn-owned.node` : '../../native/spawn-owned.node',
)

/** Path of a script among the fixtures. */
export const script = at

/** Path of the program built from `fixtures/<name>.c`, or of its replacement on Windows. */
export function program(name) {
  if (!compiled.has(name)) compiled.set(name, isWindows ? forWindows(name) : compile(name))
  return compiled.get(name)
}

/** Path of the library built from `fixtures/<name>.c`, to be preloaded. Linux. */
export function library(name) {
  if (!compiled.has(name)) compiled.set(name, compile(name, '-shared', '-fPIC'))
  return compiled.get(name)
}

/** The command that runs `fixtures/<name>.sh`; on Windows a program that does the same. */
export const shellScript = (name, ...args) =>
  isWindows ? [program(name), args] : ['sh', [at(`${name}.sh`), ...args]]

function forWindows(name) {
  buildWindowsPrograms()
  return join(WINDOWS_PROGRAMS, `${name}.exe`)
}

// Test files run in parallel processes. Each compiles to its own temporary name and renames it, so
// that no process executes a partial file.
function compile(name, ...more) {
  const source = at(`${name}.c`)
  const binary = at(`bin/${name}`)
  const newest = Math.max(modified(source), modified(at('witness.h')))
  if (modified(binary) >= newest) return binary

  mkdirSync(at('bin'), { recursive: true })
  const unfinished = `${binary}.${process.pid}`
  const flags = ['-std=c11', '-D_GNU_SOURCE', '-pthread', '-O1', '-Wall', '-Wextra', ...more]
  try {
    execFileSync('cc', [...flags, '-o', unfinished, source], { stdio: 'pipe' })
    renameSync(unfinished, binary)
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw new Error(`the tests need a C compiler named \`cc\`, and it failed on ${source}: ${error.message}`)
  }
  return binary
}

function modified(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Number.NEGATIVE_INFINITY
}
