/** `npm run stress`: the lab, or with --only the long loops. See docs/stress.md. */

import { parseArgs } from 'node:util'
import { LOOPS, Loops } from './loops.mjs'
import { savedFindings } from './regressions.mjs'

/** Every CI run plays the same rounds. */
const CI_SEED = 20_261_117
const CI_ROUNDS = 60

const HELP = `npm run stress [-- OPTION …]

Without --only: the lab. It plays rounds of random steps (hostile trees, cancels, timeouts, reaps,
faults), each in its own PID namespace, and checks them without help from the product. It prints a
failure with its seed and the shortest list of steps that still fails, and saves it in
scripts/stress/regressions.

  --minutes N      how long to play (default 5)
  --rounds N       how many rounds to play, instead of --minutes
  --seed S         play the rounds of this seed (default: a fresh seed, which is printed)
  --lanes N        rounds in parallel (default: one per processor)
  --replay S       play only the round with this seed, or the saved finding with this name
  --steps 0,3,7    with --replay: only these steps
  --times N        with --replay: how often
  --ci             play the saved findings, then ${CI_ROUNDS} rounds with a fixed seed; print one line if nothing fails

With --only: long loops, which do one thing a thousand times. Each failed round is saved, too.

  --only NAME,…    a comma-separated list of loops, or all:
                   ${LOOPS.join(', ')}
  --rounds N       rounds of each loop, instead of its full count
  --first N        the round to begin with
  --minutes N      time limit, shared equally by the loops
  --seed S         make the random choices of this seed

Ctrl-C ends the current round and prints the figures so far.
Exit code: 0 if nothing failed, 1 if an expectation failed, 2 if the options are wrong.`

const MINUTES = 5

const { values: options } = parseOptions()
if (options.help) {
  console.log(HELP)
  process.exit(0)
}
const minutes = number('minutes')
const rounds = number('rounds')
const seed = number('seed') ?? Math.floor(Math.random() * 2 ** 32)
// __test__/support, which the loops use, reads the seed from the environment when it is imported.
process.env.SEED = String(seed)

let played
let isInterrupted = false
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    // A second signal ends the process at once. Everything it started ends with it.
    if (isInterrupted) process.exit(1)
    isInterrupted = true
    console.log(`${signal}: stops after this round`)
    played?.stop()
  })
}

const hasFailed = options.only === undefined ? await playLab() : await playLoops()
// Exit now: native threads and witnesses need no cleanup.
process.exit(hasFailed ? 1 : 0)

async function playLab() {
  const { unavailable, lacks } = await import('./lab/namespace.mjs')
  if (unavailable) {
    console.log(`stress lab: skipped: ${unavailable}`)
    return false
  }
  for (const lack of lacks()) console.log(`stress lab: ${lack}; steps that need it are skipped`)
  const { Lab } = await import('./lab/lab.mjs')
  const lab = new Lab({ lanes: number('lanes'), isQuiet: options.ci })
  played = lab
  let hasLoopFailed = false
  if (options.replay !== undefined) hasLoopFailed = await replay(lab)
  else if (options.ci) hasLoopFailed = await playInCi(lab)
  else {
    console.log(`seed ${seed}`)
    const endAt = rounds === undefined ? now() + (minutes ?? MINUTES) * 60_000 : undefined
    await lab.play({ seed, rounds, endAt })
  }
  console.log(`stress lab: ${lab.summary}${options.ci ? ` · seed ${CI_SEED}` : ''}`)
  return hasLoopFailed || lab.figures.failures > 0
}

async function playInCi(lab) {
  let hasLoopFailed = false
  for (const finding of savedFindings()) hasLoopFailed = (await repeat(lab, finding)) || hasLoopFailed
  await lab.play({ seed: CI_SEED, rounds: rounds ?? CI_ROUNDS })
  return hasLoopFailed
}

async function replay(lab) {
  const finding = savedFindings().find(({ name }) => name === options.replay)
  if (finding) return await repeat(lab, finding)
  const { planFor } = await import('./lab/plan.mjs')
  await lab.replay({ plan: planFor(number('replay')), numbers: stepNumbers(), times: number('times') })
  return false
}

/** Whether a loop has failed. The lab counts its own failures. */
async function repeat(lab, { name, plan, loop, seed, round }) {
  if (plan) {
    await lab.replay({ plan, name, times: number('times') })
    return false
  }
  const loops = new Loops()
  played = loops
  await loops.play({ names: [loop], seed, first: round, rounds: 1, isSaving: false })
  played = lab
  return loops.hasFailed
}

async function playLoops() {
  const names = options.only === 'all' ? LOOPS : options.only.split(',').map((name) => name.trim())
  const unknown = names.filter((name) => !LOOPS.includes(name))
  if (unknown.length > 0) refuse(`unknown loop ${unknown.join(', ')}. The loops are: ${LOOPS.join(', ')}`)
  const loops = new Loops()
  played = loops
  console.log(`seed ${seed}`)
  const endAt = minutes === undefined ? undefined : now() + minutes * 60_000
  await loops.play({ names, rounds, first: number('first'), endAt })
  if (loops.hasFailed)
    console.log(`\nfailed; to repeat it: npm run stress -- --only ${options.only} --seed ${seed}`)
  return loops.hasFailed
}

function now() {
  return performance.now()
}

function parseOptions() {
  const text = { type: 'string' }
  const flag = { type: 'boolean' }
  try {
    return parseArgs({
      options: {
        only: text,
        rounds: text,
        minutes: text,
        seed: text,
        lanes: text,
        replay: text,
        steps: text,
        times: text,
        first: text,
        ci: flag,
        help: { ...flag, short: 'h' },
      },
    })
  } catch (error) {
    return refuse(`${error.message}\n\n${HELP}`)
  }
}

function stepNumbers() {
  const numbers = options.steps?.split(',').map(Number)
  if (numbers?.some((it) => !Number.isInteger(it)))
    refuse('--steps must be integers separated by commas, e.g. 0,3,7')
  return numbers
}

function number(name) {
  const text = options[name]
  if (text === undefined) return undefined
  const value = Number(text)
  if (text === '' || !(value >= 0)) refuse(`--${name} must be a number ≥ 0, got "${text}"`)
  return value
}

function refuse(why) {
  console.error(why)
  process.exit(2)
}
