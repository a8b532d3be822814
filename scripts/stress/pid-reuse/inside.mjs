// The rounds of pid-reuse, inside the namespace. Says what comes of them on stdout, a line of JSON each; stops when its stdin
// ends. argv[2]: how many numbers are to be reused.
import { writeSync } from 'node:fs'
import { groupGone } from '../../../__test__/support/bots.mjs'
import { randomFor, seed } from '../../../__test__/support/random.mjs'
import { Scope, Wrong } from '../lib/loop.mjs'
import { StressRegistry } from '../lib/registry.mjs'
import { cases } from './cases.mjs'
import { continueAt } from './numbers.mjs'

const wanted = Number(process.argv[2])
const random = randomFor(`pid-reuse ${seed}`)
const registry = new StressRegistry()
const figures = { rounds: 0, survivors: 0, bystanders: 0 }
/** Away from the numbers that are never signalled, and from those of the rounds before. */
const FIRST = 1000
const LAST = 30_000
const STRIDE = 500

let stopped = false
process.stdin.on('end', () => (stopped = true)).resume()

for (let turn = 0; figures.rounds < wanted && !stopped; turn++) {
  const { name, most, play } = cases[turn % cases.length]
  const count = Math.min(most, wanted - figures.rounds)
  const scope = new Scope()
  let strangers = []
  try {
    continueAt(FIRST + ((turn * STRIDE) % (LAST - FIRST)))
    const outcome = await play({ scope, registry, random, count })
    figures.rounds += outcome.reused
    figures[name] = (figures[name] ?? 0) + outcome.reused
    strangers = outcome.strangers
    judge(name, outcome)
  } catch (error) {
    say({ failure: `${name}: ${error instanceof Wrong ? error.message : error.stack}` })
    // It counts, or a case that always fails would be tried for ever.
    figures.rounds++
  } finally {
    await scope.close()
  }
  try {
    // Then what was left in doubt because of them is clear.
    for (const { pid } of strangers) await groupGone(pid)
    await registry.reap()
    await registry.mustBeEmpty(`after the strangers of ${name} have gone`)
  } catch (error) {
    say({ failure: `${name}: ${error.message}` })
  }
  say({ figures })
}
await registry.close()
process.exit()

function judge(name, { strangers, orphans, report }) {
  const ended = strangers.filter(({ witness }) => witness.isGone())
  const missed = orphans.filter(({ witness }) => !witness.isGone())
  figures.bystanders += ended.length
  figures.survivors += missed.length
  const told = () => JSON.stringify(report.decisions.map(({ record, ...decision }) => decision))
  if (ended.length > 0) say({ failure: `${name}: strangers ended: ${pids(ended)}\n${told()}` })
  if (missed.length > 0) say({ failure: `${name}: orphans missed: ${pids(missed)}\n${told()}` })
  const killed = new Set(report.killed)
  const wronged = strangers.filter(({ pid }) => killed.has(pid))
  if (wronged.length > 0) say({ failure: `${name}: reported as killed: ${pids(wronged)}\n${told()}` })
  const unsaid = orphans.filter(({ pid }) => !killed.has(pid))
  if (unsaid.length > 0) say({ failure: `${name}: not reported as killed: ${pids(unsaid)}\n${told()}` })
}

function pids(list) {
  return list.map(({ pid }) => pid).join(', ')
}

function say(message) {
  writeSync(1, `${JSON.stringify(message)}\n`)
}
