// node fleet.mjs add COMMAND [ARGUMENT …] | status [JOB] | cancel JOB | declare-dead HOST
//
// From any machine.

import { setTimeout as sleep } from 'node:timers/promises'
import { Queue } from 'bullmq'
import { Claims } from './claims.mjs'
import { connect, graceMs, QUEUE } from './settings.mjs'

const redis = connect()
const queue = new Queue(QUEUE, { connection: redis })
const claims = new Claims(redis)

/** What a host may take to end a tree, and to say so. */
const PATIENCE_MS = graceMs + 10_000

const commands = {
  async add(command, ...args) {
    if (!command) return usage()
    const { id } = await queue.add('agent', { command, args })
    console.log(id)
  },

  async status(id) {
    const jobs = id ? [await jobOf(id)] : await queue.getJobs()
    for (const job of jobs) console.log(`${job.id}\t${await describe(job)}`)
  },

  /** Resolves when nothing of it exists, wherever it ran; or says whom it has to wait for. */
  async cancel(id) {
    await jobOf(id)
    const asked = await claims.cancel(id)
    const giveUpAt = performance.now() + PATIENCE_MS
    let { outcome } = asked
    while (!outcome && performance.now() < giveUpAt) {
      await sleep(100)
      outcome = (await claims.read(id)).outcome
    }
    if (outcome) return console.log(`${id}\t${outcome.state}`)
    console.log(`${id}\t${asked.host} does not answer; it is ended as soon as that does`)
    process.exitCode = 1
  },

  async 'declare-dead'(host) {
    if (!host) return usage()
    await claims.declareDead(host)
    console.log(`${host}: its jobs may be run elsewhere. It must not come back before it was looked after.`)
  },
}

async function describe(job) {
  const { outcome, cancelled, fenced, host, epoch } = await claims.read(job.id)
  if (outcome) return outcome.state
  if (cancelled) return `is being cancelled on ${host}`
  if (fenced) return `waits until ${host} has proven that nothing of it is left`
  if (host) return `runs on ${host}, epoch ${epoch}`
  return await job.getState()
}

async function jobOf(id) {
  const job = id && (await queue.getJob(id))
  if (job) return job
  console.error(`no such job: ${id}`)
  process.exit(1)
}

function usage() {
  console.error('fleet.mjs add COMMAND [ARGUMENT …] | status [JOB] | cancel JOB | declare-dead HOST')
  process.exitCode = 2
}

const [command, ...args] = process.argv.slice(2)
await (Object.hasOwn(commands, command ?? '') ? commands[command](...args) : usage())
await queue.close()
redis.disconnect()
