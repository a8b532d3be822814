// What the Rust tests execute. Keepers that they start get no environment, so they do not know
// where to write their profile. Their code counts only if they exit by themselves.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'
import { root } from '../tools.mjs'

const folder = join(root, 'target', 'coverage')
const profiles = join(folder, 'profiles')

/** By path, `{ lines, covered, missed }`. Test code is not counted. */
export function rustCoverage() {
  const llvm = llvmTools()
  rmSync(profiles, { recursive: true, force: true })
  mkdirSync(profiles, { recursive: true })
  const env = {
    ...process.env,
    // A process that calls _exit, is killed, or executes another program writes no profile. So the
    // counters lie in the file itself (`%c`), which requires relocatable counters.
    RUSTFLAGS: '-Cinstrument-coverage -Cllvm-args=-runtime-counter-relocation',
    LLVM_PROFILE_FILE: join(profiles, '%c%4m.profraw'),
    CARGO_TARGET_DIR: join(folder, 'build'),
  }
  const quiet = ['--cargo-quiet', '--status-level', 'fail', '--final-status-level', 'fail']
  cargo(['nextest', 'run', ...quiet], { env })
  // Profiles that keepers left in their working directory when they exited.
  for (const name of readdirSync(root).filter((name) => /^default_.*\.profraw$/.test(name))) {
    renameSync(join(root, name), join(profiles, name))
  }
  const list = [
    'nextest',
    'list',
    '--cargo-quiet',
    '--list-type',
    'binaries-only',
    '--message-format',
    'json',
  ]
  const { 'rust-binaries': tests } = JSON.parse(cargo(list, { env }))
  const binaries = Object.values(tests).map((test) => test['binary-path'])
  binaries.push(join(folder, 'build', 'debug', 'spawn-owned-keeper'))
  const merged = join(folder, 'rust.profdata')
  const raw = readdirSync(profiles).map((name) => join(profiles, name))
  read(join(llvm, 'llvm-profdata'), ['merge', '-sparse', '--failure-mode=all', ...raw, '-o', merged])
  const objects = binaries.filter((path) => existsSync(path)).flatMap((path) => ['--object', path])
  const only = ['--ignore-filename-regex', '(/\\.cargo/|/rustc/|/tests\\.rs$|/tests/)']
  const text = ['export', '--format=lcov', `--instr-profile=${merged}`, ...objects, ...only]
  return parse(read(join(llvm, 'llvm-cov'), text))
}

/** lcov: `SF:` a file, `DA:line,count`. */
function parse(text) {
  const files = new Map()
  let [file, end] = [undefined, 0]
  for (const line of text.split('\n')) {
    if (line.startsWith('SF:')) {
      file = { lines: 0, covered: 0, missed: [] }
      const path = relative(root, line.slice(3))
      if (path.startsWith('src/')) {
        files.set(path, file)
        end = testsAt(path)
      }
    } else if (line.startsWith('DA:')) {
      const [number, count] = line.slice(3).split(',').map(Number)
      if (number >= end) continue
      file.lines += 1
      if (count > 0) file.covered += 1
      else file.missed.push(number)
    }
  }
  return files
}

/** The line at which the tests of a file begin. They are its last part. */
function testsAt(path) {
  const lines = readFileSync(join(root, path), 'utf8').split('\n')
  const index = lines.indexOf('mod tests {')
  return index < 0 ? Number.POSITIVE_INFINITY : index + 1
}

function llvmTools() {
  const [sysroot, about] = [read('rustc', ['--print', 'sysroot']).trim(), read('rustc', ['-vV'])]
  const place = join(sysroot, 'lib', 'rustlib', /^host: (.+)$/m.exec(about)[1], 'bin')
  if (!existsSync(join(place, 'llvm-cov'))) {
    console.error(
      'LLVM tools of Rust are needed to read profiles. Install them: rustup component add llvm-tools',
    )
    process.exit(1)
  }
  return place
}

function cargo(args, options) {
  return read('cargo', args, options)
}

function read(command, args, options) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1 << 30,
    ...options,
  })
  if (status !== 0) {
    process.stderr.write(`${stdout}${stderr}`)
    console.error(`failed: ${command} ${args.join(' ').slice(0, 200)}`)
    process.exit(1)
  }
  return stdout
}
