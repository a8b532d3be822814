/**
 * From the request to end a tree of 100 processes, half of them in other sessions, until none
 * exists.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { availableSubjects, EXECA, NODE, OURS } from '../lib/subjects.mjs'
import { cancelTree, compileTree, GROUP, TREE_KILL } from '../lib/trees.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { absoluteRow, ratioRow } from '../report/rows.mjs'

const PROCESSES = 100
const SHAPE = { middle: 9, leaves: 10 }

export const name = 'cancel'
export const worker = { cancelTree }

const subjectOf = { [OURS]: OURS, [TREE_KILL]: NODE, [GROUP]: NODE, [EXECA]: EXECA }

export async function bench({ quick, progress }) {
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  try {
    const program = compileTree(directory)
    const rivals = quick ? [OURS, TREE_KILL] : [OURS, TREE_KILL, GROUP, EXECA]
    const usable = await availableSubjects([...new Set(rivals.map((rival) => subjectOf[rival]))])
    const subjects = rivals
      .filter((rival) => usable.includes(subjectOf[rival]))
      .map((label) => ({ name: subjectOf[label], label, env: { BENCH_CANCEL: label } }))
    return await withWorkers(import.meta.url, subjects, { residentMb: 50 }, async (workers) => {
      const args = { program, directory, ...SHAPE }
      const duel = workers.slice(0, 2)
      await interleave(duel, 1, 'cancelTree', args)
      const timed = await interleave(duel, quick ? 4 : 12, 'cancelTree', args)
      progress('wrappers that exit first')
      const once = await interleave(workers.slice(2), 1, 'cancelTree', args)
      const orphaned = await interleave(workers, quick ? 1 : 2, 'cancelTree', {
        ...args,
        mode: 'wrappers-exit',
      })
      return report(timed, once, orphaned)
    })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function report(timed, once, orphaned) {
  const times = (label) => timed[label].map((sample) => sample.ms)
  const survivors = worst({ ...timed, ...once }, 'survivors')
  const tooEarly = worst(timed, 'aliveWhenTold')[OURS]
  return [
    ratioRow({
      bench: name,
      what: `cancel of ${PROCESSES} processes, half of them setsid, to verified extinction`,
      against: TREE_KILL,
      target: { atMost: 0.2, also: survivors[OURS] === 0, text: '≤ 0.2×, 0 survivors' },
      ours: times(OURS),
      theirs: times(TREE_KILL),
      note: `survivors ${survivors[OURS]}; still alive when cancel() resolved: ${tooEarly}`,
    }),
    survivorsRow('survivors of that cancel', survivors),
    survivorsRow('survivors when the wrappers had exited first', worst(orphaned, 'survivors')),
  ]
}

function survivorsRow(what, { [OURS]: value, ...others }) {
  return absoluteRow({ bench: name, what, target: { atMost: 0 }, value, unit: 'processes', others })
}

function worst(samples, field) {
  return Object.fromEntries(
    Object.entries(samples).map(([label, all]) => [label, Math.max(...all.map((sample) => sample[field]))]),
  )
}
