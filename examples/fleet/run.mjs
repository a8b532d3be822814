// One job as one run: taken, begun behind a gate, kept alive by a lease, and left when nothing of it exists.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { DelayedError, UnrecoverableError } from 'bullmq'
import { beatMs, graceMs, leaseMs, lockMs, retryMs, say } from './settings.mjs'

const TAIL = 64 * 1024

/** Ends that say nothing about the job. */
const NOT_ITS_FAULT = new Set(['manual-cancel', 'overall-timeout', 'owner-exit', 'shutdown', 'lost'])

/** What BullMQ is given to process: returns, or throws, what becomes of the job. */
export async function runJob({ host, supervisor, claims }, job, token) {
  const run = randomUUID()
  const taken = await claims.take(job.id, host, run)
  if (taken.verdict === 'settled') return settle(taken.outcome)
  if (taken.verdict === 'dead') {
    say(`${host} was declared dead`)
    process.kill(process.pid, 'SIGTERM')
    return await tryAgain(job, token)
  }
  if (taken.verdict === 'held') {
    say(`${job.id}: waits for ${taken.host} to prove that nothing of it is left`)
    return await tryAgain(job, token, retryMs)
  }
  let agent
  try {
    agent = behindAGate(supervisor, job, run, taken.epoch)
  } catch (error) {
    // It says that nothing was started.
    await claims.leave(job.id, run)
    if (error.code === 'ERR_OWNED_SHUTTING_DOWN') return await tryAgain(job, token)
    throw error
  }
  const output = tailOf(agent.stdout)
  const whenOver = new AbortController()
  keepUp(agent, claims, job, token, whenOver.signal).catch((error) => {
    if (error.name === 'AbortError') return
    say(`${job.id}: ${error.message}`)
    agent.cancel()
  })
  const exit = await agent.wait()
  whenOver.abort()
  return await conclude(claims, job, token, exit, await output)
}

/**
 * The run is there, and written down, before it may do anything: it waits for a word. Whoever looks for it from now on finds it, and
 * whoever has looked before and found nothing has fenced it first, so that the word is never given.
 */
function behindAGate(supervisor, job, run, epoch) {
  const { command, args = [] } = job.data
  const agent = supervisor.spawnOwned(
    'sh',
    ['-c', 'read -r word && [ "$word" = go ] && exec "$@"', 'gate', command, ...args],
    {
      runId: run,
      labels: { job: job.id, epoch: String(epoch) },
      commandPreview: [command, ...args].join(' '),
      env: { ...process.env, FLEET_JOB: job.id, FLEET_EPOCH: String(epoch) },
      stdio: ['pipe', 'pipe', 'inherit'],
      timeoutMs: leaseMs,
      graceMs,
    },
  )
  // wait() tells. Who is ended at the gate hears nothing any more.
  agent.on('error', () => {})
  agent.stdin.on('error', () => {})
  return agent
}

/**
 * Opens the gate, and renews the lease: the queue's lock first and then, only if that was granted, the deadline of the run. If this
 * process is stopped, or cut off from Redis, nobody moves the deadline, and the keeper ends the tree.
 *
 * A lease counts from when it was asked for, not from when the answer was read: between the two this process may have slept.
 */
async function keepUp(agent, claims, job, token, signal) {
  let renewedAt = performance.now()
  for (let isOpen = false; ; isOpen = true) {
    const askedAt = performance.now()
    if (!(await claims.holds(job.id, agent.runId))) throw new Error('is not ours any more')
    if (!(await job.extendLock(token, lockMs))) throw new Error('has lost its lock')
    const elapsed = Math.floor(askedAt - renewedAt)
    if (elapsed > 0 && !agent.extendDeadline(elapsed)) return
    renewedAt += elapsed
    if (!isOpen) agent.stdin.end(`go\n${job.data.input ?? ''}`)
    await sleep(beatMs, undefined, { signal })
  }
}

async function conclude(claims, job, token, exit, output) {
  const { reason, exitCode, message, survivors } = exit
  // It stays ours. Whoever gets the job next asks for proof, and the reaper tries again.
  if (survivors.length > 0) return await tryAgain(job, token, retryMs)
  const isJudged = !NOT_ITS_FAULT.has(reason)
  const outcome = isJudged && exitCode === 0 ? { state: 'completed', output } : undefined
  const settled = await claims.leave(job.id, exit.runId, outcome)
  if (settled) return settle(settled)
  if (isJudged) throw new Error(message)
  say(`${job.id}: ended (${reason}), to be run again`)
  return await tryAgain(job, token)
}

function settle({ state, output }) {
  if (state === 'cancelled') throw new UnrecoverableError('cancelled')
  return { output }
}

/** Back to the queue, for anybody. If the lock is lost this fails, and the job is somebody else's already. */
async function tryAgain(job, token, afterMs = 0) {
  await job.moveToDelayed(Date.now() + afterMs, token)
  throw new DelayedError()
}

async function tailOf(stream) {
  let tail = ''
  for await (const text of stream.setEncoding('utf8')) tail = (tail + text).slice(-TAIL)
  return tail
}
