// node worker.mts
//
// Takes jobs from the queue and runs each as one process tree. It may be killed, stopped or cut off
// from Redis at any time.

import { Worker } from 'bullmq'
import { Claims } from './claims.mts'
import { runJob } from './run.mts'
import { connect, lockMs, QUEUE, retryMs, say, thisHost } from './settings.mts'

const { host, supervisor } = thisHost()
const redis = connect()
const claims = new Claims(redis)

if (await claims.isDead(host)) {
  console.error(
    `${host} was declared dead. Check that none of its agents runs, remove its host-id file, and start again.`,
  )
  process.exit(1)
}
const { killed } = await supervisor.reapOrphans(process.pid)
if (killed.length > 0) say(`terminated ${killed.length} orphans of an earlier worker`)

const worker = new Worker(QUEUE, (job, token) => runJob({ host, supervisor, claims }, job, token), {
  connection: redis,
  concurrency: Number(process.env.FLEET_CONCURRENCY ?? 4),
  lockDuration: lockMs,
  // run.mts renews the lock together with the lease.
  skipLockRenewal: true,
  stalledInterval: retryMs,
  // A stalled job means that a host failed, not the job: retry without a limit.
  maxStalledCount: Number.MAX_SAFE_INTEGER,
})
worker.on('error', (error) => say(`queue: ${error.message}`))
worker.on('completed', ({ id }) => say(`${id}: completed`))
worker.on('failed', (job, { message }) => say(`${job?.id}: ${message}`))
await worker.waitUntilReady()
say(`worker ${process.pid} of ${host} is up`)

for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, async () => {
    const closed = worker.close()
    // Each job returns to the queue when its tree is gone.
    await supervisor.shutdown()
    await closed
    process.exit(0)
  })
