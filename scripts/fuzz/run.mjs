/**
 * npm run fuzz [-- --seconds 10] [-- --only journal,stat] [-- --seed 42] [-- --plain]
 *
 * Anything at all is said to whatever reads what others have written (fuzz/), for so many seconds each, and what must hold for any input
 * is checked. With libFuzzer, or with plain mutations where that cannot be built, which is said.
 *
 * What has reached new code is kept in target/fuzz/corpus, for the next time. Exits with 1, and says where the input is, if anything
 * was not as it must be.
 */
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { root, say } from '../tools.mjs'

const folder = join(root, 'fuzz')
const built = join(root, 'target', 'fuzz')
const findings = join(built, 'findings')
const NAMES = readdirSync(join(folder, 'fuzz_targets')).map((file) => file.replace('.rs', ''))

/** So that libFuzzer sees which code an input has reached, and what it was compared with. All of it is in stable Rust. */
const SEEN = [
  '-Cpasses=sancov-module',
  '-Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters',
  '-Cllvm-args=-sanitizer-coverage-pc-table',
  '-Cllvm-args=-sanitizer-coverage-trace-compares',
].join(' ')

/** No input is worth more memory than that: a hostile length must not be believed. */
const MEMORY_MB = 256
/** Far beyond what any input takes. */
const SECONDS_FOR_ONE = 5
const LONGEST = 4096

const { values: options } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    only: { type: 'string' },
    seed: { type: 'string' },
    plain: { type: 'boolean', default: false },
  },
})
const seconds = number('seconds')
const seed = number('seed') ?? Math.floor(Math.random() * 2 ** 31) + 1
const names = options.only?.split(',') ?? NAMES
const unknown = names.filter((name) => !NAMES.includes(name))
if (unknown.length > 0) refuse(`there is no target ${unknown.join(', ')}, but ${NAMES.join(', ')}`)
if (process.platform !== 'linux') refuse('fuzz/ is about what Linux has, among others: run it there')

const triple = /^host: (.*)$/m.exec(spawnSync('rustc', ['-vV'], { encoding: 'utf8' }).stdout)?.[1]
const lack = options.plain ? 'as it was asked for' : lackOfLibFuzzer()
if (lack !== undefined) console.log(`fuzz: plain mutations, without libFuzzer: ${lack}`)
say(`Building what is to be fuzzed (seed ${seed})`)
const programs = lack === undefined ? buildForLibFuzzer() : buildPlain()

const waiting = [...names]
const failed = []
await Promise.all(Array.from({ length: availableParallelism() }, work))
if (failed.length > 0) {
  console.error(`fuzz: failed: ${failed.join(', ')}; the same again: npm run fuzz -- --seed ${seed}`)
  process.exit(1)
}
console.log(`fuzz: ${names.length} targets, ${seconds} s each: nothing found`)

/** Why there is no libFuzzer: it is C++, and comes from where other crates come from. Found out by trying. */
function lackOfLibFuzzer() {
  const build = cargo(['build', '--package', 'libfuzzer-sys'], SEEN)
  if (build.status === 0) return undefined
  return /(error.*|.*not found.*)/i.exec(build.stderr)?.[1]?.trim() ?? `cargo ended with ${build.status}`
}

function buildForLibFuzzer() {
  must(cargo(['build', '--bins'], SEEN))
  return join(built, triple, 'release')
}

function buildPlain() {
  must(cargo(['build', '--no-default-features', '--features', 'plain', '--bin', 'plain'], ''))
  return join(built, triple, 'release')
}

/** With a target, so that the flags are for what is fuzzed, and not for what builds it. */
function cargo([command, ...args], flags) {
  const what = ['--quiet', '--locked', '--release', '--target', triple, '--target-dir', built]
  return spawnSync('cargo', [command, ...what, '--manifest-path', join(folder, 'Cargo.toml'), ...args], {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, RUSTFLAGS: flags },
  })
}

function must({ status, stderr, error }) {
  if (status === 0) return
  console.error(error?.message ?? stderr)
  process.exit(1)
}

async function work() {
  for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
    const output = lack === undefined ? await fuzz(name) : await mutate(name)
    if (output === undefined) continue
    failed.push(name)
    console.error(output)
  }
}

function fuzz(name) {
  const [corpus, samples] = [join(built, 'corpus', name), join(built, 'samples', name)]
  for (const it of [corpus, samples, findings]) mkdirSync(it, { recursive: true })
  const seeds = [samples, join(folder, 'seeds', name)].filter(existsSync)
  const args = [
    `-max_total_time=${seconds}`,
    `-max_len=${LONGEST}`,
    `-malloc_limit_mb=${MEMORY_MB}`,
    `-timeout=${SECONDS_FOR_ONE}`,
    `-seed=${seed}`,
    `-artifact_prefix=${join(findings, `${name}-`)}`,
    corpus,
    ...seeds,
  ]
  return ended(join(programs, name), args, { env: { ...process.env, FUZZ_SAMPLES: samples } })
}

function mutate(name) {
  mkdirSync(findings, { recursive: true })
  const args = [name, seconds, seed, join(folder, 'seeds', name)].map(String)
  return ended(join(programs, 'plain'), args, { cwd: findings })
}

/** What it has said, if it has not ended well. */
function ended(command, args, options) {
  return new Promise((resolve) => {
    let said = ''
    const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        // Most of it is how far it has come.
        said = (said + text).slice(-8000)
      })
    child.on('error', ({ message }) => resolve(message))
    child.on('close', (code) => resolve(code === 0 ? undefined : said))
  })
}

function number(name) {
  const text = options[name]
  if (text === undefined) return undefined
  const value = Number(text)
  if (!(Number.isInteger(value) && value > 0)) refuse(`--${name} must be a whole number above 0`)
  return value
}

function refuse(why) {
  console.error(why)
  process.exit(2)
}
