/**
 * Starts measured bots, gets samples from them in turn, and leaves none behind: a bot exits, with
 * everything it started, when its channel to this process closes, even if this process dies.
 */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('./worker.mjs', import.meta.url))
const live = new Set()

/**
 * One bot per subject, started in sequence. `label` distinguishes two bots with the same subject;
 * `env` is added to the environment.
 */
export async function startWorkers(moduleUrl, subjects, { residentMb = 0, execArgv = [] } = {}) {
  const workers = []
  for (const subject of subjects) {
    const { name, label = name, env } = typeof subject === 'string' ? { name: subject } : subject
    workers.push(await startWorker(moduleUrl, { name, label, env, residentMb, execArgv }))
  }
  return workers
}

async function startWorker(moduleUrl, { name, label, env, residentMb, execArgv }) {
  const child = fork(program, [moduleUrl, name, String(residentMb)], {
    env: { ...process.env, ...env },
    execArgv,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  live.add(child)
  child.once('exit', () => live.delete(child))
  const death = died(child, label)
  death.catch(() => {})
  const [hello] = await Promise.race([once(child, 'message'), death])
  return {
    name,
    label,
    pid: child.pid,
    residentMb: hello.residentMb,
    async call(operation, args) {
      child.send({ operation, args })
      const [reply] = await Promise.race([once(child, 'message'), death])
      if (reply.error) throw new Error(`${label}: ${operation} failed: ${reply.error}`)
      return reply.value
    },
    async stop() {
      if (!live.has(child)) return
      const exited = once(child, 'exit')
      child.disconnect()
      const timer = setTimeout(() => child.kill('SIGKILL'), 5000)
      await exited
      clearTimeout(timer)
    },
  }
}

async function died(child, label) {
  const [code, signal] = await once(child, 'exit')
  throw new Error(`${label}: the measured bot ended unexpectedly (${signal ?? code})`)
}

export async function stopWorkers(workers) {
  for (const worker of workers) await worker.stop()
}

/**
 * A B C, B C A, C A B, …: the noise of the machine affects all alike, and no subject is always
 * first. Returns label → samples; one call may return one sample or an array. On a machine that is
 * too busy for the budget there are fewer rounds, but at least three.
 */
export async function interleave(workers, rounds, operation, args, budgetMs = 30_000) {
  const began = performance.now()
  const samples = Object.fromEntries(workers.map((worker) => [worker.label, []]))
  for (let round = 0; round < rounds; round++) {
    if (round >= 3 && performance.now() - began > budgetMs) break
    for (let turn = 0; turn < workers.length; turn++) {
      const worker = workers[(turn + round) % workers.length]
      samples[worker.label].push(...[await worker.call(operation, args)].flat())
    }
  }
  return samples
}

/** Like `interleave`, but starts the workers before and stops them in any case. */
export async function withWorkers(moduleUrl, subjects, options, measure) {
  const workers = await startWorkers(moduleUrl, subjects, options)
  try {
    return await measure(workers)
  } finally {
    await stopWorkers(workers)
  }
}
