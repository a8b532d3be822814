// node fleet.mts add COMMAND [ARGUMENT …] | status [JOB] | cancel JOB | declare-dead HOST
//
// Adds, lists and cancels jobs, from any machine.

import { setTimeout as sleep } from 'node:timers/promises'
import { type Job, Queue } from 'bullmq'
import { Claims } from './claims.mts'
import type { JobData } from './run.mts'
import { connect, graceMs, QUEUE } from './settings.mts'

const redis = connect()
const queue = new Queue<JobData>(QUEUE, { connection: redis })
const claims = new Claims(redis)

/** The time for a host to terminate a tree and to report it. */
const CANCEL_TIMEOUT_MS = graceMs + 10_000

const commands: Record<string, (...args: string[]) => Promise<void>> = {
  async add(command, ...args) {
    if (!command) return usage()
    const { id } = await queue.add('agent', { command, args })
    console.log(id)
  },

  async status(id) {
    const jobs = id ? [await jobOf(id)] : await queue.getJobs()
    for (const job of jobs) console.log(`${job.id}\t${await describe(job)}`)
  },

  /**
   * Waits until the job's tree is gone on its host. On a timeout, prints the host that does not
   * answer.
   */
  async cancel(id = '') {
    await jobOf(id)
    const asked = await claims.cancel(id)
    const giveUpAt = performance.now() + CANCEL_TIMEOUT_MS
    let outcome = asked.verdict === 'settled' ? asked.outcome : undefined
    while (!outcome && performance.now() < giveUpAt) {
      await sleep(100)
      outcome = (await claims.read(id)).outcome
    }
    if (outcome) return console.log(`${id}\t${outcome.state}`)
    const host = asked.verdict === 'ending' ? asked.host : 'the host'
    console.log(`${id}\t${host} does not answer; the job ends when that host is back`)
    process.exitCode = 1
  },

  async 'declare-dead'(host) {
    if (!host) return usage()
    await claims.declareDead(host)
    console.log(
      `${host}: other hosts may run its jobs now. Check this host before you start its worker again.`,
    )
  },
}

async function describe(job: Job): Promise<string> {
  const { outcome, cancelled, fenced, host, epoch } = await claims.read(job.id ?? '')
  if (outcome) return outcome.state
  if (cancelled) return `is being cancelled on ${host}`
  if (fenced) return `waits until ${host} has proven that its old run is gone`
  if (host) return `runs on ${host}, epoch ${epoch}`
  return await job.getState()
}

async function jobOf(id: string): Promise<Job<JobData>> {
  const job = id && (await queue.getJob(id))
  if (job) return job
  console.error(`no such job: ${id}`)
  process.exit(1)
}

function usage(): void {
  console.error('fleet.mts add COMMAND [ARGUMENT …] | status [JOB] | cancel JOB | declare-dead HOST')
  process.exitCode = 2
}

const [command, ...args] = process.argv.slice(2)
const chosen = Object.hasOwn(commands, command ?? '') ? commands[command ?? ''] : undefined
await (chosen ? chosen(...args) : usage())
await queue.close()
redis.disconnect()
