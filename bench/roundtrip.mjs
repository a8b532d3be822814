/** From the spawn call to the `close` event of a command that ends at once. */

import { ratioRow } from './lib/rows.mjs'
import { pick, timedRuns } from './lib/runs.mjs'
import { availableSubjects, EXECA, NODE, OURS } from './lib/subjects.mjs'
import { interleave, withWorkers } from './lib/workers.mjs'

const RESIDENT_MB = 50
const RUNS_A_TURN = 10

export const name = 'roundtrip'
export const worker = { timedRuns }

export async function bench({ quick }) {
  const subjects = await availableSubjects(quick ? [OURS, NODE] : [OURS, NODE, EXECA])
  const samples = await withWorkers(
    import.meta.url,
    subjects,
    { residentMb: RESIDENT_MB },
    async (workers) => {
      await interleave(workers, 3, 'timedRuns', { count: RUNS_A_TURN })
      return interleave(workers, quick ? 20 : 60, 'timedRuns', { count: RUNS_A_TURN })
    },
  )
  const { [OURS]: ours, [NODE]: theirs, ...others } = pick(samples, 'close')
  return [
    ratioRow({
      bench: name,
      what: 'spawn → close of /bin/true',
      against: NODE,
      target: { atMost: 1 },
      ours,
      theirs,
      others,
    }),
  ]
}
