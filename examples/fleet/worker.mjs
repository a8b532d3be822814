// node worker.mjs
//
// Takes jobs and runs them, one tree each. May be killed, stopped or cut off at any time.

import { Worker } from 'bullmq'
import { Claims } from './claims.mjs'
import { runJob } from './run.mjs'
import { connect, lockMs, QUEUE, retryMs, say, thisHost } from './settings.mjs'

const { host, supervisor } = thisHost()
const redis = connect()
const claims = new Claims(redis)

if (await claims.isDead(host)) {
  console.error(`${host} was declared dead. Look after it, remove its host-id, and start again.`)
  process.exit(1)
}
const { killed } = await supervisor.reapOrphans(process.pid)
if (killed.length > 0) say(`ended what an earlier worker had left: ${killed.length}`)

const worker = new Worker(QUEUE, (job, token) => runJob({ host, supervisor, claims }, job, token), {
  connection: redis,
  concurrency: Number(process.env.FLEET_CONCURRENCY ?? 4),
  lockDuration: lockMs,
  // run.mjs renews it, together with the lease.
  skipLockRenewal: true,
  stalledInterval: retryMs,
  // It is not the job's fault if hosts die.
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
    // Each job goes back to the queue when nothing of it is left.
    await supervisor.shutdown()
    await closed
    process.exit(0)
  })
