// A bot of the lab. Each line of its stdin is a request in JSON: {id, order, args}. It answers {id,
// result} or {id, error}. It also reports, without a request and at once, that a run has started,
// could not start, or has ended. It exits at the end of its stdin.
import { spawn } from 'node:child_process'
import { closeSync, constants, openSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { createSupervisor } from 'spawn-owned'
import { PassedStreams } from './passed-streams.mjs'

// Only the bot loads the library. Its children must not.
delete process.env.LD_PRELOAD
const VARIABLES = 20
const supervisor = createSupervisor(JSON.parse(process.argv[2]))
const runs = new Map()
/** Processes that the bot started with child_process, and their handles. */
const children = new Map()
const passedStreams = new PassedStreams()
const hoard = []
let watch
// The lab causes registry warnings on purpose. With a listener they are not printed.
supervisor.on('event', () => {})
supervisor.on('orphan:killed', ({ runId }) => send({ killed: runId }))

const orders = {
  spawn({ runId, file, args, options, witness, streams, isRead }) {
    // Every child holds the witness FIFO from its first instruction. The exception is a run with a
    // terminal: it gets no other file descriptor.
    const held = openSync(witness, constants.O_WRONLY | constants.O_NONBLOCK)
    try {
      const stdio = options.pty ? undefined : streams.map((stream) => (stream === 'witness' ? held : stream))
      const run = supervisor.spawnOwned(file, args, { runId, ...options, stdio })
      run.startedAt = performance.now()
      run.on('spawn', () => send({ begun: runId, pid: run.pid }))
      run.on('error', ({ code, message }) => send({ failed: runId, code, message }))
      follow(run)
      if (isRead) orders.read(runId)
      return { pid: run.pid }
    } finally {
      closeSync(held)
    }
  },
  /** The first run creates what later runs reuse. The delay lets the next keeper get ready. */
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
  /** Counts the output from its first byte. The bot has not read any before. */
  read(runId) {
    const run = runs.get(runId)
    if (!run?.stdout) return
    if (run.bytes === undefined && run.exitCode === null && run.signalCode === null) {
      run.bytes = 0
      run.stdout.on('data', ({ length }) => (run.bytes += length))
      run.on('close', () => send({ closed: runId, bytes: run.bytes }))
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
  startChild({ runId, file, args, leads, isRegistered }) {
    const child = spawn(file, args, { stdio: 'ignore', detached: leads })
    child.on('error', () => {})
    children.set(runId, child)
    let isRecorded = isRegistered && child.pid !== undefined
    try {
      if (isRecorded) supervisor.registerProcess({ runId, pid: child.pid, graceMs: 100 })
    } catch {
      // The process runs, although it could not be registered.
      isRecorded = false
    }
    return { pid: child.pid, isRecorded }
  },
  cancelChild: (runId) => supervisor.cancel(children.get(runId)),
  unregisterChild: (runId) => supervisor.unregisterProcess(children.get(runId)),
  passStdout: (runId) => passedStreams.take(runs.get(runId)?.stdout),
  checkSockets: () => passedStreams.checkSockets(),
  release: () => passedStreams.release(),
  /**
   * Writes to process.env in every turn of the event loop, while native threads run. (dotenv writes
   * to it once.)
   */
  async writeEnvironment(ms) {
    const endAt = performance.now() + ms
    for (let turn = 0; performance.now() < endAt; turn++) {
      for (let i = 0; i < VARIABLES; i++) process.env[`LAB_${turn}_${i}`] = 'x'.repeat(turn % 100)
      await new Promise(setImmediate)
      for (let i = 0; i < VARIABLES; i++) delete process.env[`LAB_${turn}_${i}`]
    }
  },
  register: (entry) => void supervisor.registerProcess(entry),
  unregister: (target) => supervisor.unregisterProcess(target),
  reap: ({ policy, dryRun }) =>
    supervisor.reapOrphans(process.pid, { dryRun, policy: policy === 'leave' ? () => 'leave' : policy }),
  shutdown: (options) => supervisor.shutdown(options),
  /** Opens file descriptors until only `free` are left. */
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
  run.wait().then((exit) => send({ over: run.runId, exit }))
}

process.stdin.on('end', () => process.exit(1))
createInterface({ input: process.stdin }).on('line', (line) => execute(JSON.parse(line)))
send({ ready: true })

async function execute({ id, order, args }) {
  const began = performance.now()
  let blockedMs
  try {
    const answer = orders[order](...args)
    // From here on the event loop runs, even if the answer takes long.
    blockedMs = performance.now() - began
    send({ id, result: await answer, blockedMs })
  } catch ({ code, message, stack }) {
    send({ id, error: { code, message, stack }, blockedMs: blockedMs ?? performance.now() - began })
  }
}

/** Writes synchronously, not through a stream: a SIGKILL afterwards loses no message. */
function send(message) {
  writeSync(1, `${JSON.stringify(message)}\n`)
}
