/**
 * The system calls of one thread with their times, as the kernel records them (tracefs). The
 * measured program needs no change for that. Each record costs it half a microsecond.
 */

import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const TRACEFS = '/sys/kernel/tracing'
const BUFFER_KB = 16 << 10

/** Why tracing is not possible, or undefined. */
export function whyNoTrace() {
  if (!existsSync(join(TRACEFS, 'instances'))) return 'it needs root and a mounted tracefs'
  if (!existsSync(join(TRACEFS, 'events/syscalls'))) return 'this kernel does not trace system calls'
  return undefined
}

/**
 * The records of thread `tid` during `measure`, in order: `{ at, enter }` and `{ at, exit }` with
 * the name of a system call, `{ at, off }` and `{ at, on }` when the thread loses and gets a CPU
 * (`off` is its state then; R means that it was preempted). `at` is in microseconds.
 */
export async function traced(tid, measure) {
  const instance = join(TRACEFS, 'instances', `spawn-owned-bench-${process.pid}`)
  const put = (file, value) => writeFileSync(join(instance, file), String(value))
  mkdirSync(instance)
  try {
    put('trace_clock', 'mono')
    put('buffer_size_kb', BUFFER_KB)
    put('set_event_pid', tid)
    put('events/sched/sched_switch/enable', 1)
    put('events/syscalls/enable', 1)
    const result = await measure()
    put('tracing_on', 0)
    return { result, notes: parse(readFileSync(join(instance, 'trace'), 'utf8'), tid) }
  } finally {
    put('events/enable', 0)
    rmdirSync(instance)
  }
}

/** Exported so that traces from other sources can be parsed. */
export function parse(text, tid) {
  const line =
    /^.*-(\d+)\s+\[\d+\] \S+ +(\d+\.\d+): (?:sys_(\w+)(\(| -> )|sched_switch: .*prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+))/
  const notes = []
  for (const entry of text.split('\n')) {
    const [, thread, seconds, call, kind, from, state, to] = line.exec(entry) ?? []
    if (seconds === undefined) continue
    const at = Number(seconds) * 1e6
    if (call === undefined) {
      if (Number(from) === tid) notes.push({ at, off: state })
      if (Number(to) === tid) notes.push({ at, on: true })
    } else if (Number(thread) === tid) {
      notes.push(kind === '(' ? { at, enter: call } : { at, exit: call })
    }
  }
  return notes
}
