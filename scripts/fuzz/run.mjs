/**
 * npm run fuzz [-- --seconds 10] [-- --only journal,stat] [-- --seed 42] [-- --plain] [-- --ci]
 *
 * Feeds arbitrary bytes to every parser of foreign input (fuzz/), for some seconds each, and checks
 * what must hold for any input. Uses libFuzzer, or plain mutations where libFuzzer cannot be built.
 * The targets `options` and `cli` call the public functions and the command line with arbitrary
 * arguments: the tests of these names, with more turns.
 *
 * The seed is fresh, and printed. Inputs that reach new code stay in target/fuzz/corpus for the
 * next run. An input that breaks a property is saved as a regression case: in fuzz/seeds, which
 * every later run starts from, or as a seed in __test__/fixtures/data/fuzz-seeds.json, which
 * `npm test` repeats. Then the exit code is 1.
 *
 * --ci: a fixed seed, a fixed number of inputs and no corpus, so that each run does the same.
 */
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { root, say } from '../tools.mjs'

const folder = join(root, 'fuzz')
const built = join(root, 'target', 'fuzz')
const findings = join(built, 'findings')
const PARSERS = readdirSync(join(folder, 'fuzz_targets')).map((file) => file.replace('.rs', ''))
/**
 * Tests that draw arguments, with the calls of each function or command per second. --ci skips
 * them: `npm test` runs them with a fixed seed.
 */
const TESTS = {
  options: { file: '__test__/run/fuzz-options.test.mjs', pace: 30 },
  cli: { file: '__test__/cli/fuzz-cli.test.mjs', pace: 2 },
}
const NAMES = [...PARSERS, ...Object.keys(TESTS)]
const savedSeeds = join(root, '__test__', 'fixtures', 'data', 'fuzz-seeds.json')

/**
 * So that libFuzzer sees which code an input reaches, and the values it is compared with. All flags
 * are in stable Rust.
 */
const SEEN = [
  '-Cpasses=sancov-module',
  '-Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters',
  '-Cllvm-args=-sanitizer-coverage-pc-table',
  '-Cllvm-args=-sanitizer-coverage-trace-compares',
].join(' ')

/** No input may need more memory: the parser must not trust a hostile length. */
const MEMORY_MB = 256
/** Far more than any input needs. */
const SECONDS_FOR_ONE = 5
const LONGEST = 4096
const CI_SEED = 20_261_118
/** Inputs for each parser, which take some five seconds. */
const CI_RUNS = 50_000

const { values: options } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    only: { type: 'string' },
    seed: { type: 'string' },
    plain: { type: 'boolean', default: false },
    ci: { type: 'boolean', default: false },
  },
})
const seconds = number('seconds')
const seed = number('seed') ?? (options.ci ? CI_SEED : Math.floor(Math.random() * 2 ** 31) + 1)
const names = options.only?.split(',') ?? (options.ci ? PARSERS : NAMES)
const unknown = names.filter((name) => !NAMES.includes(name))
if (unknown.length > 0) refuse(`unknown target ${unknown.join(', ')}. The targets are: ${NAMES.join(', ')}`)
if (process.platform !== 'linux') refuse('fuzz/ needs Linux, because some targets parse Linux files')

const triple = /^host: (.*)$/m.exec(spawnSync('rustc', ['-vV'], { encoding: 'utf8' }).stdout)?.[1]
const lack = options.plain ? 'because of --plain' : lackOfLibFuzzer()
if (lack !== undefined) console.log(`fuzz: plain mutations, without libFuzzer: ${lack}`)
if (!options.ci) console.log(`fuzz: seed ${seed}`)
say('Building the fuzz targets')
const programs = lack === undefined ? buildForLibFuzzer() : buildPlain()

const waiting = [...names]
const failed = []
await Promise.all(Array.from({ length: availableParallelism() }, work))
if (failed.length > 0) {
  console.error(`fuzz: failed: ${failed.join(', ')}; to repeat it: npm run fuzz -- --seed ${seed}`)
  process.exit(1)
}
console.log(
  `fuzz: ${names.length} targets, ${options.ci ? `${CI_RUNS} inputs` : `${seconds} s`} each: nothing found`,
)

/**
 * Why libFuzzer cannot be used, found out by building it. It is C++, and comes from the crate
 * registry.
 */
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

/**
 * With an explicit target, so that the flags apply to the fuzzed code, and not to build scripts.
 */
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
    const play = name in TESTS ? call : lack === undefined ? fuzz : mutate
    const output = await play(name)
    if (output === undefined) continue
    failed.push(name)
    console.error(output)
    if (options.ci) continue
    if (name in TESTS) saveSeed(name, output)
    else saveInputs(name)
  }
}

function fuzz(name) {
  const [corpus, samples] = [join(built, options.ci ? 'ci' : 'corpus', name), join(built, 'samples', name)]
  // Findings of an earlier run would change this one.
  if (options.ci) rmSync(corpus, { recursive: true, force: true })
  for (const it of [corpus, samples, findings]) mkdirSync(it, { recursive: true })
  const seeds = [samples, join(folder, 'seeds', name)].filter(existsSync)
  const args = [
    options.ci ? `-runs=${CI_RUNS}` : `-max_total_time=${seconds}`,
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
  const limit = options.ci ? `${CI_RUNS} inputs` : `${seconds} s`
  const args = [name, limit, String(seed), join(folder, 'seeds', name)]
  return ended(join(programs, 'plain'), args, { cwd: findings })
}

function call(name) {
  const { file, pace } = TESTS[name]
  const env = { ...process.env, SEED: String(seed), TURNS: String(seconds * pace) }
  return ended(process.execPath, ['--test', '--test-reporter=spec', file], { cwd: root, env })
}

/** Files that libFuzzer or `plain` left for a target become its seeds, named by their content. */
function saveInputs(name) {
  for (const file of readdirSync(findings).filter((it) => it.startsWith(`${name}-`))) {
    const path = join(findings, file)
    const input = readFileSync(path)
    const digest = createHash('sha256').update(input).digest('hex').slice(0, 12)
    const saved = join(folder, 'seeds', name, `regression-${digest}`)
    mkdirSync(join(folder, 'seeds', name), { recursive: true })
    writeFileSync(saved, input)
    rmSync(path)
    console.error(`fuzz: saved as ${relative(root, saved)}`)
  }
}

/** From now on the tests of the failed functions or commands repeat this seed. */
function saveSeed(name, output) {
  const saved = JSON.parse(readFileSync(savedSeeds, 'utf8'))
  // Nested tests: one per function or command.
  const failedTests = [...output.matchAll(/^ {2}✖ (.+?) \(\d/gm)].map(([, test]) => test)
  for (const test of new Set(failedTests)) saved[name][test] = [...(saved[name][test] ?? []), seed]
  writeFileSync(savedSeeds, `${JSON.stringify(saved, null, 2)}\n`)
  console.error(`fuzz: saved in ${relative(root, savedSeeds)}`)
}

/** The end of its output, if it failed. */
function ended(command, args, options) {
  return new Promise((resolve) => {
    let said = ''
    const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        // Most of the output is progress.
        said = (said + text).slice(-20_000)
      })
    child.on('error', ({ message }) => resolve(message))
    child.on('close', (code) => resolve(code === 0 ? undefined : said))
  })
}

function number(name) {
  const text = options[name]
  if (text === undefined) return undefined
  const value = Number(text)
  if (!(Number.isInteger(value) && value > 0)) refuse(`--${name} must be an integer above 0`)
  return value
}

function refuse(why) {
  console.error(why)
  process.exit(2)
}
