// A bot of the lab. Does what its stdin says, a line of JSON each: {id, order, args}; answers {id, result} or {id, error}, and says
// unasked, in the very moment, when a run begins, cannot begin, and is over. It ends with its stdin.
import { closeSync, constants, openSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { createSupervisor } from 'spawn-owned'

// For bots only, not for what they start.
delete process.env.LD_PRELOAD
const supervisor = createSupervisor(JSON.parse(process.argv[2]))
const runs = new Map()
const hoard = []
let watch
// Trouble with the registry is what the lab makes; a listener keeps it from being warned of.
supervisor.on('event', () => {})
supervisor.on('orphan:killed', ({ runId }) => say({ killed: runId }))

const orders = {
  spawn({ runId, file, args, options, witness, streams, isRead }) {
    // Whatever is started has the witness open from its first instruction, but for one with a terminal, which gets no other descriptor.
    const held = openSync(witness, constants.O_WRONLY | constants.O_NONBLOCK)
    try {
      const stdio = options.pty ? undefined : streams.map((stream) => (stream === 'witness' ? held : stream))
      const run = supervisor.spawnOwned(file, args, { runId, ...options, stdio })
      run.startedAt = performance.now()
      run.on('spawn', () => say({ begun: runId, pid: run.pid }))
      run.on('error', ({ code, message }) => say({ failed: runId, code, message }))
      follow(run)
      if (isRead) orders.read(runId)
      return { pid: run.pid }
    } finally {
      closeSync(held)
    }
  },
  /** Whatever is made once is made by the first run. Its helpers are made ready for the next one meanwhile. */
  async warmUp() {
    await supervisor.spawnOwned('true', { stdio: 'pipe' }).wait()
    await delay(100)
  },
  async adopt(runId) {
    const run = await supervisor.adopt(runId)
    follow(run)
    return { pid: run.pid }
  },
  cancel: (target, options) => supervisor.cancel(target, options),
  hangUp: (runId) => void runs.get(runId)?.stdin?.end(),
  /** What it says is counted, from its first byte on: it was not read before. */
  read(runId) {
    const run = runs.get(runId)
    if (!run?.stdout) return
    if (run.bytes === undefined && run.exitCode === null && run.signalCode === null) {
      run.bytes = 0
      run.stdout.on('data', ({ length }) => (run.bytes += length))
      run.on('close', () => say({ closed: runId, bytes: run.bytes }))
    }
    run.stdout.resume()
  },
  stopReading: (runId) => void runs.get(runId)?.stdout?.pause(),
  signal: (runId, signal) => runs.get(runId)?.kill?.(signal) ?? false,
  extend(runId, ms) {
    const run = runs.get(runId)
    const age = performance.now() - (run?.startedAt ?? 0)
    return { isMoved: run?.extendDeadline?.(ms) ?? false, age }
  },
  watch(options) {
    watch?.stop()
    watch = supervisor.watchOrphans({ patterns: [], ...options })
  },
  unwatch: () => watch?.stop(),
  register: (entry) => void supervisor.registerProcess(entry),
  unregister: (target) => supervisor.unregisterProcess(target),
  reap: ({ policy, dryRun }) =>
    supervisor.reapOrphans(process.pid, { dryRun, policy: policy === 'leave' ? () => 'leave' : policy }),
  shutdown: (options) => supervisor.shutdown(options),
  /** Takes all descriptors but so many. */
  hoard(free) {
    try {
      for (;;) hoard.push(openSync('/dev/null'))
    } catch {
      for (const fd of hoard.splice(0, free)) closeSync(fd)
    }
  },
  relent() {
    for (const fd of hoard.splice(0)) closeSync(fd)
  },
  leave: () => process.exit(0),
}

function follow(run) {
  runs.set(run.runId, run)
  run.wait().then((exit) => say({ over: run.runId, exit }))
}

process.stdin.on('end', () => process.exit(1))
createInterface({ input: process.stdin }).on('line', (line) => obey(JSON.parse(line)))
say({ ready: true })

async function obey({ id, order, args }) {
  try {
    say({ id, result: await orders[order](...args) })
  } catch ({ code, message, stack }) {
    say({ id, error: { code, message, stack } })
  }
}

/** Not through a stream: what was said before a SIGKILL has been said. */
function say(message) {
  writeSync(1, `${JSON.stringify(message)}\n`)
}
