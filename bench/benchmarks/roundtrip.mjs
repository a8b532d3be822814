/** From the spawn call to the `close` event of a command that ends at once. */

import { pick, timedRuns } from '../lib/runs.mjs'
import { availableSubjects, EXECA, NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { ratioRow } from '../report/rows.mjs'

const RESIDENT_MB = 50
const RUNS_A_TURN = 10

export const name = 'roundtrip'
export const worker = { timedRuns }

export async function bench({ quick }) {
  const subjects = await availableSubjects(quick ? [OURS, NODE] : [OURS, NODE, EXECA])
  const count = RUNS_A_TURN
  return withWorkers(import.meta.url, subjects, { residentMb: RESIDENT_MB }, async (workers) => {
    await interleave(workers, 3, 'timedRuns', { count })
    const bare = await interleave(workers, quick ? 20 : 60, 'timedRuns', { count })
    const listening = await interleave(workers, quick ? 5 : 30, 'timedRuns', { count, listen: true })
    return [
      row('spawn → close of /bin/true', pick(bare, 'close'), { atMost: 1 }),
      row('the same, outputs listened to', pick(listening, 'close')),
    ]
  })
}

function row(what, { [OURS]: ours, [NODE]: theirs, ...others }, target) {
  return ratioRow({ bench: name, what, against: NODE, target, ours, theirs, others })
}
