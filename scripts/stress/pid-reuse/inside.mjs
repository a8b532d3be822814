// The rounds of pid-reuse, inside the namespace. Prints each result as a line of JSON. Stops at the
// end of its stdin. argv[2]: how many PIDs to reuse.
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
/** Above the PIDs that are never signalled, and apart from those of earlier rounds. */
const FIRST = 1000
const LAST = 30_000
const STRIDE = 500

let stopped = false
process.stdin.on('end', () => (stopped = true)).resume()

for (let turn = 0; figures.rounds < wanted && !stopped; turn++) {
  const { name, most, play } = cases[turn % cases.length]
  const count = Math.min(most, wanted - figures.rounds)
  const scope = new Scope()
  let bystanders = []
  try {
    continueAt(FIRST + ((turn * STRIDE) % (LAST - FIRST)))
    const outcome = await play({ scope, registry, random, count })
    figures.rounds += outcome.reused
    figures[name] = (figures[name] ?? 0) + outcome.reused
    bystanders = outcome.bystanders
    judge(name, outcome)
  } catch (error) {
    send({ failure: `${name}: ${error instanceof Wrong ? error.message : error.stack}` })
    // Counted, because otherwise a case that always fails would be repeated for ever.
    figures.rounds++
  } finally {
    await scope.close()
  }
  try {
    // After their end, the reaper can decide on entries that it left undecided before.
    for (const { pid } of bystanders) await groupGone(pid)
    await registry.reap()
    await registry.mustBeEmpty(`after the bystanders of ${name} have gone`)
  } catch (error) {
    send({ failure: `${name}: ${error.message}` })
  }
  send({ figures })
}
await registry.close()
process.exit()

function judge(name, { bystanders, orphans, report }) {
  const ended = bystanders.filter(({ witness }) => witness.isGone())
  const missed = orphans.filter(({ witness }) => !witness.isGone())
  figures.bystanders += ended.length
  figures.survivors += missed.length
  const decided = () => JSON.stringify(report.decisions.map(({ record, ...decision }) => decision))
  if (ended.length > 0) send({ failure: `${name}: bystanders ended: ${pids(ended)}\n${decided()}` })
  if (missed.length > 0) send({ failure: `${name}: orphans missed: ${pids(missed)}\n${decided()}` })
  const killed = new Set(report.killed)
  const wronged = bystanders.filter(({ pid }) => killed.has(pid))
  if (wronged.length > 0)
    send({ failure: `${name}: bystanders reported as killed: ${pids(wronged)}\n${decided()}` })
  const unreported = orphans.filter(({ pid }) => !killed.has(pid))
  if (unreported.length > 0)
    send({ failure: `${name}: orphans not reported as killed: ${pids(unreported)}\n${decided()}` })
}

function pids(list) {
  return list.map(({ pid }) => pid).join(', ')
}

function send(message) {
  writeSync(1, `${JSON.stringify(message)}\n`)
}
