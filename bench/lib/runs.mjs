/** Worker side: runs of `/bin/true`, the shortest command there is, each timed in four ways. */

const COMMAND = '/bin/true'

/**
 * - `call`: how long the spawn call blocked the event loop
 * - `used`: `call` plus what most callers do next: read `pid` and listen to both outputs
 * - `close`: from before the call until the `close` event
 * - `active`: total time in which the loop was busy, from before the call until `close`
 */
export async function timedRuns(start, { count, listen = false }) {
  const samples = []
  for (let i = 0; i < count; i++) samples.push(await timedRun(start, listen))
  return samples
}

function timedRun(start, listen) {
  return new Promise((resolve, reject) => {
    const loop = performance.eventLoopUtilization()
    const before = performance.now()
    const child = start(COMMAND, [], { stdio: 'pipe' })
    const returned = performance.now()
    if (listen) use(child)
    const used = performance.now()
    child.once('error', reject)
    child.once('close', () => {
      const closed = performance.now()
      const active = performance.eventLoopUtilization(loop).active
      // Outside the emitter, so that the next run starts in a fresh turn of the loop.
      setImmediate(resolve, { call: returned - before, used: used - before, close: closed - before, active })
    })
  })
}

function use(child) {
  if (!(child.pid > 0)) throw new Error('the child has no pid')
  child.stdout.on('data', ignore)
  child.stderr.on('data', ignore)
}

function ignore() {}

/** Starts all runs at once. Resolves when the last one has closed. */
export function burst(start, { count, listen = false }) {
  return new Promise((resolve, reject) => {
    const before = performance.now()
    let called = 0
    let open = count
    const onClose = () => {
      if (--open === 0) setImmediate(resolve, { total: performance.now() - before, called })
    }
    for (let i = 0; i < count; i++) {
      const child = start(COMMAND, [], { stdio: 'pipe' })
      if (listen) use(child)
      child.once('error', reject)
      child.once('close', onClose)
    }
    called = performance.now() - before
  })
}

/** label → array of one field of the samples. */
export function pick(samples, field) {
  return Object.fromEntries(
    Object.entries(samples).map(([label, all]) => [label, all.map((sample) => sample[field])]),
  )
}
