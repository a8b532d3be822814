/**
 * Two ways of getting a keeper, for docs/design.md: a spare one waits for the run, or the zygote
 * forks one on demand.
 */

import { burst, pick, timedRuns } from '../lib/runs.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { ratioRow } from '../report/rows.mjs'

const RUNS_A_TURN = 10
/** The default of the library, and the setting that this benchmark forces. */
const WAYS = { 'waiting keepers': {}, 'forked on demand': { SPAWN_OWNED_STOCK: '0' } }

export const name = 'keeper-start'
export const worker = { timedRuns, burst }

export async function bench({ quick, progress }) {
  const subjects = [
    ...Object.entries(WAYS).map(([label, env]) => ({ name: OURS, label, env })),
    { name: NODE, label: NODE },
  ]
  const rows = []
  for (const residentMb of quick ? [50] : [50, 512]) {
    progress(`${residentMb} MB`)
    await withWorkers(import.meta.url, subjects, { residentMb }, async (workers) => {
      await interleave(workers, 2, 'timedRuns', { count: RUNS_A_TURN })
      const runs = await interleave(workers, quick ? 15 : 40, 'timedRuns', { count: RUNS_A_TURN })
      rows.push(
        ...rowsOf(`spawn call blocks the event loop, ${residentMb} MB RSS`, pick(runs, 'call')),
        ...rowsOf(`spawn → close of /bin/true, ${residentMb} MB RSS`, pick(runs, 'close')),
      )
      // 200 forks of a large bot take many seconds, and show nothing new.
      if (residentMb > 50) return
      const bursts = await interleave(workers, quick ? 3 : 12, 'burst', { count: 200 })
      rows.push(...rowsOf('200 spawns at once until all closed, 50 MB RSS', pick(bursts, 'total')))
    })
  }
  return rows
}

function rowsOf(what, samples) {
  return Object.keys(WAYS).map((way) =>
    ratioRow({
      bench: name,
      what: `${way}: ${what}`,
      against: NODE,
      ours: samples[way],
      theirs: samples[NODE],
    }),
  )
}
