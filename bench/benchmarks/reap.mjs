/**
 * reapOrphans of a bot that has just started, over a registry full of runs whose processes are all
 * dead.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PlainRegistry } from '../lib/plain-registry.mjs'
import { reapTheDead } from '../lib/reaping.mjs'
import { seedEntries, tokenOfTheDead, writeRegistry } from '../lib/seed.mjs'
import { median } from '../lib/stats.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { withWorkers } from '../lib/workers.mjs'
import { absoluteRow } from '../report/rows.mjs'

const ENTRIES = 10_000
const PLAIN = 'a plain JSON file and kill(pid, 0)'

export const name = 'reap'
export const worker = { reap }

export async function bench({ quick }) {
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  const path = join(directory, 'process-registry.json')
  const subjects = [OURS, PLAIN].map((label) => ({
    name: label === OURS ? OURS : NODE,
    label,
    env: { SPAWN_OWNED_REGISTRY: path, BENCH_REAP: label },
  }))
  const samples = { [OURS]: [], [PLAIN]: [] }
  try {
    const entries = seedEntries(ENTRIES, await tokenOfTheDead())
    for (let round = 0; round < (quick ? 3 : 10); round++) {
      for (const subject of round % 2 === 0 ? subjects : subjects.toReversed()) {
        writeRegistry(path, entries)
        // A fresh bot each time: a real bot reaps once, at its start.
        const reaped = ([bot]) => bot.call('reap', { path })
        samples[subject.label].push(await withWorkers(import.meta.url, [subject], {}, reaped))
      }
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  return [row(samples)]
}

function row({ [OURS]: ours, [PLAIN]: theirs }) {
  const figure = (field) => `${median(ours.map((sample) => sample[field])).toFixed(0)} ms`
  return absoluteRow({
    bench: name,
    what: `reapOrphans over ${ENTRIES.toLocaleString('en')} entries whose processes are dead`,
    target: { atMost: 300 },
    value: median(ours.map(({ ms }) => ms)),
    unit: 'ms',
    samples: ours.map(({ ms }) => ms),
    others: { [`${PLAIN}, which cannot tell which process has a PID`]: median(theirs.map(({ ms }) => ms)) },
    note: `event loop busy ${figure('busy')}, at most ${figure('longest')} at a time; the file is empty ${figure('behind')} later`,
  })
}

// ---- in the measured bot ----------------------------------------------------------------------

function reap(start, task) {
  const way = process.env.BENCH_REAP === PLAIN ? (path) => PlainRegistry.read(path).reap() : undefined
  return reapTheDead(start, { ...task, entries: ENTRIES }, way)
}
