// `npm run test:sanitizers`: the Rust tests, and the keepers they start, under ThreadSanitizer and
// AddressSanitizer. `-- thread` or `-- address`: one of them. `-- miri`: the pure modules in Miri,
// which is slow. A missing tool is reported, and is not a failure.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './tools.mjs'

const host = /^host: (.+)$/m.exec(read('rustc', ['-vV']))?.[1]

/**
 * What Miri can run: no processes, no foreign functions. The simulation of thousands of processes
 * is left out: it would take an hour.
 */
const pure =
  'test(/^(run::|reap::classify|identity::(stat|token|macos::(kinfo|procargs))|contain::(tree|cookie|shell)|keeper::protocol|ports::table|errno::windows|spawn::(windows|requested_containment)|registry::(local_entries|claim_state|cached_record))/)'

const tools = {
  // With the standard library, because ThreadSanitizer must see both sides of its locks.
  thread: { flags: '-Zsanitizer=thread', args: ['-Zbuild-std'], missing: missingSource },
  address: { flags: '-Zsanitizer=address', args: [], missing: () => undefined },
  miri: { toolchain: 'nightly', args: ['--lib', '-E', pure], missing: missingMiri },
}

const wanted = process.argv.slice(2)
for (const name of wanted.length > 0 ? wanted : ['thread', 'address']) {
  const tool = tools[name]
  if (!tool) fail(`unknown sanitizer "${name}". Pass thread, address or miri.`)
  const why = unsupported() ?? tool.missing()
  if (why) console.log(`${name}: not run: ${why}`)
  else check(name, tool)
}

function check(name, { flags, args, toolchain }) {
  const began = Date.now()
  const command = toolchain
    ? [`+${toolchain}`, 'miri', 'nextest', 'run']
    : ['nextest', 'run', '--target', host]
  const quiet = ['--cargo-quiet', '--status-level', 'fail', '--final-status-level', 'fail', '--no-fail-fast']
  const folder = ['--target-dir', join(root, 'target', 'sanitizers', name)]
  const env = { ...process.env, ...(flags && { RUSTFLAGS: flags, RUSTC_BOOTSTRAP: '1' }) }
  // A report in a child process of a test must fail that test.
  Object.assign(env, { TSAN_OPTIONS: 'halt_on_error=1', ASAN_OPTIONS: 'detect_leaks=0' })
  const { status, stderr } = spawnSync('cargo', [...command, ...args, ...folder, ...quiet], {
    cwd: root,
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'inherit', 'pipe'],
    maxBuffer: 1 << 28,
  })
  if (status !== 0) {
    process.stderr.write(stderr)
    fail(`${name}: failed`)
  }
  const passed = /(\d+) passed/.exec(stderr)?.[1]
  console.log(
    `${name}: ${passed} tests passed, nothing to report (${Math.round((Date.now() - began) / 1000)} s)`,
  )
}

function unsupported() {
  if (host !== 'x86_64-unknown-linux-gnu') return `it supports only x86_64-unknown-linux-gnu, this is ${host}`
  if (!read('cargo', ['nextest', '--version'])) return 'cargo-nextest is missing'
}

function missingSource() {
  const source = join(read('rustc', ['--print', 'sysroot']).trim(), 'lib/rustlib/src/rust/library/Cargo.lock')
  if (!existsSync(source)) return "Rust's source is missing (rustup component add rust-src)"
}

function missingMiri() {
  if (!read('cargo', ['+nightly', 'miri', '--version'])) {
    return 'Miri is missing (rustup component add miri rust-src --toolchain nightly)'
  }
}

/** The output of a program, or undefined. */
function read(command, args) {
  const { status, stdout } = spawnSync(command, args, { encoding: 'utf8', cwd: root })
  return status === 0 ? stdout : ''
}

function fail(why) {
  console.error(why)
  process.exit(1)
}
