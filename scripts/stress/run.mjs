/** `npm run stress`: the lab, or with --only the long loops. See docs/stress.md. */

import { parseArgs } from 'node:util'
import { LOOPS, Loops } from './loops.mjs'

const HELP = `npm run stress [-- OPTION …]

Without --only: the lab. Rounds of random steps (hostile trees, cancels, deadlines, reaps, faults), each in a PID namespace of its
own, judged by an independent witness. What fails is told with its seed and the shortest trace that still does.

  --minutes N      for so long (default 5)
  --rounds N       so many rounds, instead
  --seed S         the same rounds as another time
  --lanes N        so many rounds side by side (default: one for each processor)
  --replay S       the one round with this seed
  --steps 0,3,7    … and of it only these steps
  --times N        … so many times
  --ci             two minutes, three quarters of them with a fixed seed; one line if all is well

With --only: loops that do one thing a thousand times over, a comma-separated list of them or all.

  --only NAME,…    ${LOOPS.join(', ')}, or all
  --rounds N       so many of each, instead of the full count
  --minutes N      no more time than that, shared equally
  --seed S         the same random choices as another time

Ctrl-C ends the round that is being played, prints the figures so far and stops. Exits with 1 if anything was not as it must be.`

/** That of every CI run, so that most of it is the same each time. */
const FIXED_SEED = 20_261_117
const CI_MINUTES = 2
const MINUTES = 5

const { values: options } = parseOptions()
if (options.help) {
  console.log(HELP)
  process.exit(0)
}
const minutes = number('minutes')
const rounds = number('rounds')
const seed = number('seed') ?? Math.floor(Math.random() * 2 ** 32)
// The support of the tests, on which the loops rest, reads it from there when it is imported.
process.env.SEED = String(seed)

let played
let isInterrupted = false
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    // Whoever insists is obeyed: what was started goes with this process.
    if (isInterrupted) process.exit(1)
    isInterrupted = true
    console.log(`${signal}: this round is the last`)
    played?.stop()
  })
}

const hasFailed = options.only === undefined ? await playLab() : await playLoops()
// Native threads and witnesses need no farewell.
process.exit(hasFailed ? 1 : 0)

async function playLab() {
  const { unavailable, lacks } = await import('./lab/namespace.mjs')
  if (unavailable) {
    console.log(`stress lab: not played here: ${unavailable}`)
    return false
  }
  for (const lack of lacks()) console.log(`stress lab: ${lack}; what needs it is passed over`)
  const { Lab } = await import('./lab/lab.mjs')
  const lab = new Lab({ lanes: number('lanes'), isQuiet: options.ci })
  played = lab
  if (options.replay !== undefined)
    await lab.replay({ seed: number('replay'), numbers: stepNumbers(), times: number('times') })
  else if (options.ci) await playInCi(lab)
  else {
    console.log(`seed ${seed}`)
    const endAt = rounds === undefined ? now() + (minutes ?? MINUTES) * 60_000 : undefined
    await lab.play({ seed, rounds, endAt })
  }
  const seeds = options.ci ? ` · seeds ${FIXED_SEED} and ${seed}` : ''
  console.log(`stress lab: ${lab.summary}${seeds}`)
  return lab.figures.failures > 0
}

async function playInCi(lab) {
  const quarter = ((minutes ?? CI_MINUTES) * 60_000) / 4
  await lab.play({ seed: FIXED_SEED, endAt: now() + 3 * quarter })
  await lab.play({ seed, endAt: now() + quarter })
}

async function playLoops() {
  const names = options.only === 'all' ? LOOPS : options.only.split(',').map((name) => name.trim())
  const unknown = names.filter((name) => !LOOPS.includes(name))
  if (unknown.length > 0) refuse(`there is no loop ${unknown.join(', ')}, but ${LOOPS.join(', ')}`)
  const loops = new Loops()
  played = loops
  console.log(`seed ${seed}`)
  await loops.play({ names, rounds, endAt: minutes === undefined ? undefined : now() + minutes * 60_000 })
  if (loops.hasFailed)
    console.log(`\nfailed; the same again: npm run stress -- --only ${options.only} --seed ${seed}`)
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
    refuse('--steps must be numbers, with commas between them')
  return numbers
}

function number(name) {
  const text = options[name]
  if (text === undefined) return undefined
  const value = Number(text)
  if (text === '' || !(value >= 0)) refuse(`--${name} must be a number`)
  return value
}

function refuse(why) {
  console.error(why)
  process.exit(2)
}
