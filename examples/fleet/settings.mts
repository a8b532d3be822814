// Settings that all programs of the fleet share: Redis, times, and the name of this host.

import { randomUUID } from 'node:crypto'
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { createSupervisor, type Supervisor } from 'spawn-owned'

export const QUEUE = 'agents'

const seconds = (name: string, fallback: number) => Number(process.env[name] ?? fallback) * 1000

/** The lease: how long an agent runs without its worker. The keeper enforces it as a timeout. */
export const leaseMs = seconds('FLEET_LEASE', 15)
/** From SIGTERM to SIGKILL. */
export const graceMs = seconds('FLEET_GRACE', 5)
/**
 * The queue's lock. After it, another worker may get the job. It is longer than lease and grace.
 */
export const lockMs = leaseMs + graceMs + seconds('FLEET_MARGIN', 10)
/** The interval between renewals: three per lease. */
export const beatMs = leaseMs / 3
/** The delay before a job that waits for a host is tried again. */
export const retryMs = seconds('FLEET_RETRY', 2)

/** A connection that retries without a limit. Code that must not wait has its own timeout. */
export function connect(): Redis {
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

export interface Host {
  host: string
  supervisor: Supervisor
}

/**
 * This host: its registry and its name, which are stored in the same folder. A host that loses its
 * registry also loses its name, so it cannot confirm the end of runs that it has no record of.
 */
export function thisHost(): Host {
  const folder = process.env.FLEET_FOLDER ?? 'data'
  mkdirSync(folder, { recursive: true })
  return {
    host: nameIn(folder),
    supervisor: createSupervisor({ registryPath: join(folder, 'process-registry.json'), graceMs }),
  }
}

/**
 * Reads or creates the host's name. `link` is atomic: worker and reaper may call this at the same
 * time.
 */
function nameIn(folder: string): string {
  const path = join(folder, 'host-id')
  const draft = `${path}.${process.pid}`
  writeFileSync(draft, `${hostname()}-${randomUUID().slice(0, 8)}`)
  try {
    linkSync(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(draft)
  }
  return readFileSync(path, 'utf8').trim()
}

export const say = (text: string): void => console.log(text)
