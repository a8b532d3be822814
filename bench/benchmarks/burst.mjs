/** 200 spawns in one turn of the event loop, until the last one has closed. */

import { burst, pick } from '../lib/runs.mjs'
import { availableSubjects, EXECA, NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { ratioRow } from '../report/rows.mjs'

const RESIDENT_MB = 50
const COUNT = 200

export const name = 'burst'
export const worker = { burst }

export async function bench({ quick }) {
  const subjects = await availableSubjects(quick ? [OURS, NODE] : [OURS, NODE, EXECA])
  return withWorkers(import.meta.url, subjects, { residentMb: RESIDENT_MB }, async (workers) => {
    await interleave(workers, 1, 'burst', { count: COUNT })
    const bare = await interleave(workers, quick ? 4 : 15, 'burst', { count: COUNT })
    const listening = await interleave(workers, quick ? 2 : 7, 'burst', { count: COUNT, listen: true })
    return [
      row(`${COUNT} spawns at once until all closed`, pick(bare, 'total'), { atMost: 0.8 }),
      row('the same, outputs listened to', pick(listening, 'total')),
      row(`the ${COUNT} spawn calls alone`, pick(bare, 'called')),
    ]
  })
}

function row(what, { [OURS]: ours, [NODE]: theirs, ...others }, target) {
  return ratioRow({ bench: name, what, against: NODE, target, ours, theirs, others })
}
