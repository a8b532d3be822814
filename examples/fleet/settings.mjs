// What every program of the fleet needs to know: where Redis is, how long things may take, and which host this is.

import { randomUUID } from 'node:crypto'
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { createSupervisor } from 'spawn-owned'

export const QUEUE = 'agents'

const seconds = (name, fallback) => Number(process.env[name] ?? fallback) * 1000

/** How long an agent runs on when its worker is not heard of: the deadline that its keeper watches. */
export const leaseMs = seconds('FLEET_LEASE', 15)
/** From SIGTERM to SIGKILL. */
export const graceMs = seconds('FLEET_GRACE', 5)
/** After this the queue may hand the job to somebody else. By then the lease and the grace are over. */
export const lockMs = leaseMs + graceMs + seconds('FLEET_MARGIN', 10)
/** Three chances to renew a lease. */
export const beatMs = leaseMs / 3
/** How soon a job is tried again that has to wait for a host. */
export const retryMs = seconds('FLEET_RETRY', 2)

/** A connection that waits for Redis as long as it takes. Whoever must not wait has a deadline elsewhere. */
export function connect() {
  const redis = new Redis(process.env.FLEET_REDIS ?? 'redis://127.0.0.1:6379', {
    maxRetriesPerRequest: null,
    retryStrategy: (times) => Math.min(100 * times, 2000),
  })
  let isUp = true
  redis.on('ready', () => {
    isUp = true
  })
  redis.on('error', (error) => {
    if (isUp) console.error(`redis: ${error.message}`)
    isUp = false
  })
  return redis
}

/**
 * This host: a registry, and a name that is kept beside it. Whoever has lost the one has lost the other, so nobody can answer for runs
 * that he knows nothing of.
 */
export function thisHost() {
  const folder = process.env.FLEET_FOLDER ?? 'data'
  mkdirSync(folder, { recursive: true })
  return {
    host: nameIn(folder),
    supervisor: createSupervisor({ registryPath: join(folder, 'process-registry.json'), graceMs }),
  }
}

/** Worker and reaper may be the first to ask at the same time: a link is made once, and is whole when it is there. */
function nameIn(folder) {
  const path = join(folder, 'host-id')
  const draft = `${path}.${process.pid}`
  writeFileSync(draft, `${hostname()}-${randomUUID().slice(0, 8)}`)
  try {
    linkSync(draft, path)
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
  } finally {
    rmSync(draft)
  }
  return readFileSync(path, 'utf8').trim()
}

export const say = (text) => console.log(text)
