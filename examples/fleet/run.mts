// Runs one job: claims it, spawns the run behind a gate, renews its lease, and releases the claim
// when the tree is gone.

import { randomUUID } from 'node:crypto'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { DelayedError, type Job, UnrecoverableError } from 'bullmq'
import type { RunExit, Supervisor, TerminationReason } from 'spawn-owned'
import type { Claims, Outcome } from './claims.mts'
import { beatMs, graceMs, type Host, leaseMs, lockMs, retryMs, say } from './settings.mts'

const TAIL = 64 * 1024

export interface JobData {
  command: string
  args?: string[]
  input?: string
}

/** An agent behind its gate: see {@link spawnGated}. */
type GatedAgent = ReturnType<typeof spawnGated>

/** Reasons that say nothing about the job itself: run it again. */
const RETRY_REASONS = new Set<TerminationReason>([
  'manual-cancel',
  'overall-timeout',
  'owner-exit',
  'shutdown',
  'lost',
])

/** BullMQ's processor. Returns the job's result, or throws its failure. */
export async function runJob(
  { host, supervisor, claims }: Host & { claims: Claims },
  job: Job<JobData>,
  token = '',
): Promise<{ output: string }> {
  const id = job.id ?? ''
  const run = randomUUID()
  const taken = await claims.take(id, host, run)
  if (taken.verdict === 'settled') return settle(taken.outcome)
  if (taken.verdict === 'dead') {
    say(`${host} was declared dead; this worker stops`)
    process.kill(process.pid, 'SIGTERM')
    return await requeue(job, token)
  }
  if (taken.verdict === 'held') {
    say(`${id}: waits for ${taken.host} to prove that its old run is gone`)
    return await requeue(job, token, retryMs)
  }
  let agent: GatedAgent
  try {
    agent = spawnGated(supervisor, job, run, taken.epoch)
  } catch (error) {
    // spawnOwned threw, so nothing was started.
    await claims.leave(id, run)
    if ((error as NodeJS.ErrnoException).code === 'ERR_OWNED_SHUTTING_DOWN') return await requeue(job, token)
    throw error
  }
  const output = tailOf(agent.stdout)
  const ended = new AbortController()
  renewLease(agent, claims, job, token, ended.signal).catch((error) => {
    if (error.name === 'AbortError') return
    say(`${job.id}: ${error.message}`)
    agent.cancel()
  })
  const exit = await agent.wait()
  ended.abort()
  return await conclude(claims, job, token, exit, await output)
}

/**
 * Spawns the run behind a gate: a shell that waits for the word "go" on stdin. So the registry
 * contains the run before the agent starts. A reaper that looks later finds the run. A reaper that
 * looked earlier and found nothing had fenced the run before, so `holds` is false and the word is
 * never sent.
 */
function spawnGated(supervisor: Supervisor, job: Job<JobData>, run: string, epoch: number) {
  const { command, args = [] } = job.data
  const id = job.id ?? ''
  const agent = supervisor.spawnOwned(
    'sh',
    ['-c', 'read -r word && [ "$word" = go ] && exec "$@"', 'gate', command, ...args],
    {
      runId: run,
      labels: { job: id, epoch: String(epoch) },
      commandPreview: [command, ...args].join(' '),
      env: { ...process.env, FLEET_JOB: id, FLEET_EPOCH: String(epoch) },
      stdio: ['pipe', 'pipe', 'inherit'],
      timeoutMs: leaseMs,
      graceMs,
    },
  )
  // wait() reports errors. A write to the stdin of a run that ended at its gate fails: ignore it.
  agent.on('error', () => {})
  agent.stdin.on('error', () => {})
  return agent
}

/**
 * Opens the gate and renews the lease. It extends the queue's lock first, and the run's timeout
 * only if that succeeds. If this process is stopped or cut off from Redis, the timeout expires and
 * the keeper terminates the tree.
 *
 * A lease counts from the time of the request, not of the answer, because this process may be
 * stopped between the two.
 */
async function renewLease(
  agent: GatedAgent,
  claims: Claims,
  job: Job<JobData>,
  token: string,
  signal: AbortSignal,
): Promise<void> {
  let renewedAt = performance.now()
  for (let isOpen = false; ; isOpen = true) {
    const askedAt = performance.now()
    if (!(await claims.holds(job.id ?? '', agent.runId)))
      throw new Error('this worker does not hold the job any more')
    if (!(await job.extendLock(token, lockMs))) throw new Error('this worker lost the lock of the job')
    const elapsed = Math.floor(askedAt - renewedAt)
    if (elapsed > 0 && !agent.extendDeadline(elapsed)) return
    renewedAt += elapsed
    if (!isOpen) agent.stdin.end(`go\n${job.data.input ?? ''}`)
    await sleep(beatMs, undefined, { signal })
  }
}

async function conclude(
  claims: Claims,
  job: Job<JobData>,
  token: string,
  exit: RunExit,
  output: string,
): Promise<{ output: string }> {
  const { reason, exitCode, message, survivors } = exit
  // The claim stays. The next `take` requests a proof, and the reaper tries again.
  if (survivors.length > 0) return await requeue(job, token, retryMs)
  const isJudged = !RETRY_REASONS.has(reason)
  const outcome: Outcome | undefined = isJudged && exitCode === 0 ? { state: 'completed', output } : undefined
  const settled = await claims.leave(job.id ?? '', exit.runId, outcome)
  if (settled) return settle(settled)
  if (isJudged) throw new Error(message)
  say(`${job.id}: ended (${reason}), will run again`)
  return await requeue(job, token)
}

function settle({ state, output = '' }: Outcome): { output: string } {
  if (state === 'cancelled') throw new UnrecoverableError('cancelled')
  return { output }
}

/**
 * Returns the job to the queue. Fails if the lock is lost, because another worker has the job then.
 */
async function requeue(job: Job<JobData>, token: string, afterMs = 0): Promise<never> {
  await job.moveToDelayed(Date.now() + afterMs, token)
  throw new DelayedError()
}

async function tailOf(stream: Readable): Promise<string> {
  let tail = ''
  for await (const text of stream.setEncoding('utf8')) tail = (tail + text).slice(-TAIL)
  return tail
}
