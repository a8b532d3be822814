/** Bytes per second through `stdout` into a `data` listener. */

import { availableSubjects, EXECA, NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { ratioRow } from '../report/rows.mjs'

const MIB = 1024 * 1024
const BLOCK = 64 * 1024

export const name = 'throughput'
export const worker = { stream }

export async function bench({ quick }) {
  const subjects = await availableSubjects(quick ? [OURS, NODE] : [OURS, NODE, EXECA])
  const mib = quick ? 256 : 1024
  const samples = Object.fromEntries(subjects.map((subject) => [subject, []]))
  // New bots several times: the place of its memory and threads can make a process fast or slow for
  // its whole life.
  for (let generation = 0; generation < (quick ? 3 : 7); generation++) {
    const more = await withWorkers(import.meta.url, subjects, {}, async (workers) => {
      await interleave(workers, 1, 'stream', { mib: 64 })
      return interleave(workers, 4, 'stream', { mib })
    })
    for (const subject of subjects) samples[subject].push(...more[subject])
  }
  const { [OURS]: ours, [NODE]: theirs, ...others } = samples
  return [
    ratioRow({
      bench: name,
      what: `stdout throughput, ${mib === 1024 ? '1 GiB' : `${mib} MiB`}`,
      against: NODE,
      target: { atLeast: 0.97 },
      unit: 'MiB/s',
      ours,
      theirs,
      others,
    }),
  ]
}

function stream(start, { mib }) {
  return new Promise((resolve, reject) => {
    const expected = mib * MIB
    let received = 0
    const before = performance.now()
    const blocks = expected / BLOCK
    const child = start('dd', ['if=/dev/zero', `bs=${BLOCK}`, `count=${blocks}`], {
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    child.once('error', reject)
    child.stdout.on('data', (chunk) => {
      received += chunk.length
    })
    child.once('close', () => {
      const seconds = (performance.now() - before) / 1000
      if (received === expected) setImmediate(resolve, mib / seconds)
      else reject(new Error(`${received} of ${expected} bytes arrived`))
    })
  })
}
