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
// Trouble with the registry is what the lab makes; a listener keeps it from being warned of.
supervisor.on('event', () => {})

const orders = {
  spawn({ runId, file, args, options, witness, input, output }) {
    // Whatever is started has the witness open from its first instruction.
    const held = openSync(witness, constants.O_WRONLY | constants.O_NONBLOCK)
    try {
      const stdio = [input, output, 'ignore', held]
      const run = supervisor.spawnOwned(file, args, { runId, ...options, stdio })
      run.on('spawn', () => say({ begun: runId, pid: run.pid }))
      run.on('error', ({ code, message }) => say({ failed: runId, code, message }))
      follow(run)
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
