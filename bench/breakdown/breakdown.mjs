/**
 * Where one spawn call spends its microseconds, ours and Node's: between which system calls, and
 * while another process has the CPU.
 *
 * A call is cut into steps at the system calls that are typical of each step. Computation before
 * such a call counts as part of that step.
 */

import { sum } from '../lib/proc.mjs'
import { median } from '../lib/stats.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { withWorkers } from '../lib/workers.mjs'
import { traced, whyNoTrace } from './trace.mjs'

const RUNS_A_TURN = 25
const OTHERS = 'another process has the CPU'

/** In order, each with the system calls that start it. */
const STEPS = {
  [OURS]: [
    ['options, objects, and into native code', undefined],
    ['environment, folder, program', /^(openat|newfstatat|faccessat2?)$/],
    ['umask and credentials', /^(umask|getres[ug]id|getgroups)$/],
    ['take a waiting keeper', /^(poll|recvmsg)$/],
    ['write the intent', /^(write|openat)$/],
    ['hand over the command', /^sendmsg$/],
    ['objects, and notify the native thread', /^(write|sendto)$/],
  ],
  [NODE]: [
    ['options, objects, and into native code', undefined],
    ['socket pairs', /^(socketpair|pipe2)$/],
    ['fork', /^(clone3?|vfork)$/],
    ['wait until it is executed', /^(read|wait4)$/],
    ['streams', /^(ioctl|fcntl|epoll_ctl)$/],
  ],
}
const LAST = 'return, and the result for the caller'

export const name = 'breakdown'
export const worker = { markedRuns }

const CASES = [
  { label: 'one run after the other', pauseMs: 0 },
  { label: 'a run now and then', pauseMs: 100 },
]

/** `bars`, each with its `steps` in microseconds. */
export async function breakdown({ quick, progress }) {
  const why = whyNoTrace()
  if (why) {
    progress(`left out: ${why}`)
    return { bars: [] }
  }
  const bars = []
  await withWorkers(import.meta.url, [OURS, NODE], { residentMb: 50 }, async (workers) => {
    for (const { label, pauseMs } of CASES) {
      const rounds = pauseMs > 0 ? (quick ? 1 : 4) : quick ? 4 : 20
      for (const { label: subject, cuts } of await sample(workers, rounds, pauseMs)) {
        bars.push({ label: `${subject}, ${label}`, subject, case: label, ...typical(cuts) })
      }
    }
  })
  return { bars }
}

async function sample(workers, rounds, pauseMs) {
  const cuts = new Map(workers.map((worker) => [worker, []]))
  for (let round = -1; round < rounds; round++) {
    for (const worker of workers) {
      const args = { count: RUNS_A_TURN, pauseMs }
      const { notes } = await traced(worker.pid, () => worker.call('markedRuns', args))
      // The first call fills caches and executes its program for the first time, so it does not
      // count.
      if (round >= 0) cuts.get(worker).push(...calls(notes).map((call) => cut(call, STEPS[worker.name])))
    }
  }
  return [...cuts].map(([{ label }, cuts]) => ({ label, cuts }))
}

/** The notes between the marks before and after each call. */
export function calls(notes) {
  const found = []
  let current
  let isInside = false
  for (const note of notes) {
    if (note.exit === MARK) {
      isInside = !isInside
      current = isInside ? { from: note.at, notes: [] } : undefined
    } else if (note.enter === MARK && current) found.push({ ...current, to: note.at })
    else current?.notes.push(note)
  }
  return found
}

/** Microseconds per step, and the number of system calls in each. */
export function cut({ from, to, notes }, steps) {
  const parts = new Map(
    [...steps.map(([step]) => step), LAST, OTHERS].map((step) => [step, { us: 0, calls: 0 }]),
  )
  let [step, at, away] = [0, from, 0]
  let left
  const close = (name, until) => {
    parts.get(name).us += until - at - away
    parts.get(OTHERS).us += away
    ;[at, away] = [until, 0]
  }
  for (const note of notes) {
    // A thread that sleeps in a step is still in this step.
    if (note.off?.startsWith('R')) left = note.at
    else if (note.on && left !== undefined) {
      away += note.at - left
      left = undefined
    } else if (note.enter !== undefined) {
      const isNext = steps[step + 1]?.[1].test(note.enter)
      // The first step is the computation before the first system call.
      if (step === 0 && isNext) close(steps[0][0], note.at)
      if (isNext) step++
      parts.get(steps[step][0]).calls++
    } else if (note.exit !== undefined) close(steps[step][0], note.at)
  }
  close(LAST, to)
  return { total: to - from, parts }
}

/**
 * The average of the least disturbed half of the calls. One note has a resolution of only a
 * microsecond; averages are finer.
 */
function typical(cuts) {
  const limit = median(cuts.map(({ total }) => total))
  const calm = cuts.filter(({ total }) => total <= limit)
  const mean = (read) => sum(calm.map(read)) / calm.length
  const steps = [...calm[0].parts.keys()].map((step) => ({
    step,
    us: mean(({ parts }) => parts.get(step).us),
    calls: mean(({ parts }) => parts.get(step).calls),
  }))
  return { total: mean(({ total }) => total), p50: limit, n: cuts.length, steps }
}

// ---- in the measured bot ----------------------------------------------------------------------

/** A cheap system call that marks a position in the trace. */
const MARK = 'getegid'
const mark = () => process.getegid()

async function markedRuns(start, { count, pauseMs }) {
  for (let i = 0; i < count; i++) {
    await new Promise((resolve, reject) => {
      mark()
      const child = start('/bin/true', [], { stdio: 'pipe' })
      mark()
      child.once('error', reject)
      child.once('close', () => setTimeout(resolve, pauseMs))
    })
  }
}
