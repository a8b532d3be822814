/**
 * npm run stress [-- --only bot-killed,pid-reuse] [-- --rounds 20] [-- --minutes 5] [-- --seed 42]
 *
 * The long loops: what tests do a few times, a thousand times over.
 *
 * --only     a comma-separated list of loops
 * --rounds   so many of each, instead of the full count
 * --minutes  no more time than that, shared equally by the loops
 * --seed     the random choices of an earlier run
 *
 * Ctrl-C ends the round that is being played, prints the figures so far and stops. Exits with 1, and prints the seed, if anything
 * was not as it must be.
 */

import { parseArgs } from 'node:util'

const NAMES = ['bot-killed', 'all-killed', 'all-killed-in-cgroup', 'pid-reuse', 'shared-registry', 'soak']

const { values: options } = parseArgs({
  options: {
    only: { type: 'string' },
    rounds: { type: 'string' },
    minutes: { type: 'string' },
    seed: { type: 'string' },
  },
})
const names = options.only?.split(',').map((name) => name.trim()) ?? NAMES
const rounds = number('rounds')
const minutes = number('minutes')
const unknown = names.filter((name) => !NAMES.includes(name))
if (unknown.length > 0) refuse(`there is no loop ${unknown.join(', ')}, but ${NAMES.join(', ')}`)

// The support of the tests, on which the loops rest, reads it from there when it is imported.
process.env.SEED = String(number('seed') ?? Math.floor(Math.random() * 2 ** 32))
const { Loop } = await import('./lib/loop.mjs')
console.log(`seed ${process.env.SEED}`)

let loop
let interrupted = false
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    // Whoever insists is obeyed: what was started goes with this process.
    if (interrupted) process.exit(1)
    interrupted = true
    console.log(`${signal}: this round is the last`)
    loop?.stop()
  })
}

const endAt = minutes === undefined ? Number.POSITIVE_INFINITY : performance.now() + minutes * 60_000
for (const [index, name] of names.entries()) {
  if (interrupted) break
  const { play, what, full } = await import(`./${name}.mjs`)
  const share = (endAt - performance.now()) / (names.length - index)
  loop = new Loop({ name, rounds: rounds ?? full, endAt: performance.now() + share })
  console.log(`\n${name}: ${what}`)
  await loop.run(play)
  if (loop.failures.length > 0) process.exitCode = 1
}
if (process.exitCode) console.log(`\nfailed; the same again: npm run stress -- --seed ${process.env.SEED}`)
// Native threads and witnesses need no farewell.
process.exit()

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
