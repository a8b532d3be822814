// Builds the programs of fixtures/windows before tests on Windows, also on another system: `node
// __test__/support/windows-programs.mjs [compiler]`. The compiler is a gcc for Windows; on Windows
// also clang, or that of Visual Studio if neither is found. Does nothing if all programs are newer
// than their sources.
import { execFileSync, execSync, spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isWindows, WINDOWS_PROGRAMS } from './system.mjs'

const source = (name) => fileURLToPath(new URL(`../fixtures/windows/${name}`, import.meta.url))

/** Each is one program with many names: its name selects what it does. */
const sets = [
  {
    source: 'programs.c',
    folder: WINDOWS_PROGRAMS,
    names: [
      ...['stays', 'ignores-sigterm', 'half-setsid', 'double-fork-daemon', 'cleans-up-on-sigterm'],
      ...['marks-every-sigterm', 'forks-on-sigterm', 'tree-of-100', 'tree-of-31', 'hydra'],
      ...['cleared-environment', 'main-thread-exited', 'burns-and-dies', 'talks', 'holds-lock'],
      ...['reports-witness-holder', 'converses', 'exits-on-order'],
    ],
  },
  {
    source: 'only-windows.c',
    folder: WINDOWS_PROGRAMS,
    names: [
      ...['breaks-away', 'new-console', 'wrapper-leaves', 'suspended', 'denies-all-access', 'denying-child'],
      ...['hands-down', 'takes-pid', 'wants-processes', 'wants-memory'],
    ],
  },
  {
    source: 'commands.c',
    folder: join(WINDOWS_PROGRAMS, 'commands'),
    names: [
      ...['bash', 'cat', 'counts', 'echo', 'environ', 'false', 'head', 'printf', 'pwd', 'seq', 'sh', 'sleep'],
      ...['leads-a-group', 'touch', 'true', 'wc', 'yes'],
    ],
  },
]

/** `undefined`: that of Visual Studio. */
const usual = () =>
  isWindows
    ? ['gcc', 'clang'].find((name) => spawnSync(name, ['--version']).status === 0)
    : 'x86_64-w64-mingw32-gcc'

export function buildWindowsPrograms(compiler = usual()) {
  for (const set of sets) build(compiler, set)
}

/** Test files call this in parallel: each uses its own file, and the last rename wins. */
function build(compiler, { source: name, folder, names }) {
  const binaries = names.map((it) => join(folder, `${it}.exe`))
  const newest = Math.max(...[name, 'children.h', 'witness.h'].map((it) => modified(source(it))))
  if (binaries.every((binary) => modified(binary) >= newest)) return

  mkdirSync(folder, { recursive: true })
  const first = join(folder, `unfinished-${process.pid}.exe`)
  if (compiler) compile(compiler, source(name), first)
  else compileWithVisualStudio(source(name), first)
  for (const binary of binaries) {
    copyFileSync(first, `${binary}.${process.pid}`)
    renameSync(`${binary}.${process.pid}`, binary)
  }
  renameSync(first, join(folder, `${names[0]}.exe`))
}

const stdio = ['ignore', 'ignore', 'inherit']

function compile(compiler, source, binary) {
  const flags = ['-std=c11', '-O1', '-Wall', '-Wextra', '-static']
  execFileSync(compiler, [...flags, '-o', binary, source, '-lshell32', '-luser32', '-ladvapi32'], { stdio })
}

/**
 * It is not in the PATH: a batch file sets it up for the commands that follow in the same shell.
 */
function compileWithVisualStudio(source, binary) {
  const installer = join(
    process.env['ProgramFiles(x86)'],
    'Microsoft Visual Studio',
    'Installer',
    'vswhere.exe',
  )
  const asked = ['-latest', '-products', '*', '-property', 'installationPath']
  const folder = execFileSync(installer, asked, { encoding: 'utf8' }).trim()
  const setUp = join(folder, 'VC', 'Auxiliary', 'Build', 'vcvarsall.bat')
  const flags = ['/nologo', '/std:c11', '/utf-8', '/O1', '/W3', '/MT', '/D_CRT_SECURE_NO_WARNINGS']
  const libraries = 'shell32.lib user32.lib advapi32.lib'
  const call = `cl ${flags.join(' ')} /Fo"${binary}.obj" /Fe"${binary}" "${source}" ${libraries}`
  execSync(`"${setUp}" ${process.arch} >NUL && ${call}`, { stdio: ['ignore', 'pipe', 'inherit'] })
  rmSync(`${binary}.obj`, { force: true })
}

function modified(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Number.NEGATIVE_INFINITY
}

if (process.argv[1] === fileURLToPath(import.meta.url)) buildWindowsPrograms(process.argv[2])
