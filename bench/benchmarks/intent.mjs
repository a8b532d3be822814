/**
 * The cost in a spawn call of recording the run before its start, for registries in different
 * places.
 */

import { mkdtempSync, rmSync, statfsSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { pick, timedRuns } from '../lib/runs.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { ratioRow } from '../report/rows.mjs'

const TMPFS = 0x01021994
const RUNS_A_TURN = 10
const ON_DISK = 'registry on disk'
const IN_MEMORY = 'registry in memory'

export const name = 'intent'
export const worker = { timedRuns }

export async function bench({ quick, progress }) {
  const isTmpfs = (folder) => statfsSync(folder).type === TMPFS
  const disk = [tmpdir(), '/var/tmp', homedir()].find((folder) => !isTmpfs(folder))
  const memory = ['/dev/shm', tmpdir()].find(isTmpfs)
  if (disk === undefined || memory === undefined) {
    progress('left out: it needs a folder on a disk and one in memory')
    return []
  }
  const folders = [disk, memory].map((folder) => mkdtempSync(join(folder, 'spawn-owned-bench-')))
  const subjects = [
    ...[ON_DISK, IN_MEMORY].map((label, index) => ({
      name: OURS,
      label,
      env: { SPAWN_OWNED_REGISTRY: join(folders[index], 'process-registry.json') },
    })),
    { name: NODE, label: NODE },
  ]
  try {
    return await withWorkers(import.meta.url, subjects, { residentMb: 50 }, async (workers) => {
      await interleave(workers, 2, 'timedRuns', { count: RUNS_A_TURN })
      const runs = await interleave(workers, quick ? 15 : 50, 'timedRuns', { count: RUNS_A_TURN })
      return [
        row(pick(runs, 'call'), 'spawn call blocks the event loop'),
        row(pick(runs, 'close'), 'spawn → close of /bin/true'),
      ]
    })
  } finally {
    for (const folder of folders) rmSync(folder, { recursive: true, force: true })
  }
}

function row(samples, what) {
  return ratioRow({
    bench: name,
    what: `${what}, ${ON_DISK}`,
    against: `the same, ${IN_MEMORY}`,
    ours: samples[ON_DISK],
    theirs: samples[IN_MEMORY],
    others: { [NODE]: samples[NODE] },
  })
}
