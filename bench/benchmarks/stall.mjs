/** How long the spawn call blocks the event loop, for bots of three sizes. */

import { availableMb } from '../lib/proc.mjs'
import { pick, timedRuns } from '../lib/runs.mjs'
import { availableSubjects, EXECA, NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { ratioRow } from '../report/rows.mjs'

const SIZES = [
  { residentMb: 50, size: '50 MB', atMost: 0.25, rounds: 60, quickRounds: 20 },
  { residentMb: 512, size: '512 MB', atMost: 0.03, rounds: 18, quickRounds: 5 },
  { residentMb: 2048, size: '2 GB', atMost: 0.01, rounds: 8, quickRounds: 2 },
]
const RUNS_A_TURN = 5

export const name = 'stall'
export const worker = { timedRuns }

export async function bench({ quick, progress }) {
  const subjects = await availableSubjects(quick ? [OURS, NODE] : [OURS, NODE, EXECA])
  const rows = []
  for (const { residentMb, size, atMost, rounds, quickRounds } of SIZES) {
    if (residentMb * subjects.length * 1.2 > availableMb()) {
      progress(`${size} left out: not enough free memory`)
      continue
    }
    progress(size)
    const count = RUNS_A_TURN
    await withWorkers(import.meta.url, subjects, { residentMb }, async (workers) => {
      await interleave(workers, 2, 'timedRuns', { count })
      const bare = await interleave(workers, quick ? quickRounds : rounds, 'timedRuns', { count })
      const listening = await interleave(workers, quick ? 2 : rounds / 2, 'timedRuns', {
        count,
        listen: true,
      })
      rows.push(
        row(`spawn call blocks the event loop, ${size} RSS`, pick(bare, 'call'), { atMost }),
        row(`the same, pid read and outputs listened to, ${size} RSS`, pick(listening, 'used')),
        row(
          `event loop busy from call to close, outputs listened to, ${size} RSS`,
          pick(listening, 'active'),
        ),
      )
    })
  }
  return rows
}

function row(what, { [OURS]: ours, [NODE]: theirs, ...others }, target) {
  return ratioRow({ bench: name, what, against: NODE, target, ours, theirs, others })
}
