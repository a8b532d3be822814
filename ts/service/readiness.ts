// Checks whether a live service is ready.

import { connect } from 'node:net'
import type { RunRecord } from '../../index.js'
import { type PortHolder, portHolder } from '../native/addon.js'
import { codedError } from '../util/errors.js'
import { LATE, within } from '../util/timeouts.js'
import type { ServiceSettings } from './service-options.js'

/**
 * The timeout of one connection attempt. A process on this machine answers sooner, unless it hangs.
 */
const PROBE_MS = 1000

/** A process that holds the port and does not belong to the service. */
export type Stranger = Extract<PortHolder, { whose: 'stranger' }>

export type Readiness =
  | { kind: 'ready' }
  | { kind: 'not-yet'; error?: Error | undefined }
  /** Another process has the port of the service. */
  | { kind: 'stranger'; who: Stranger }

/**
 * Checks the readiness of an instance once.
 *
 * An answer at the port is no proof: another process may have bound the port before the service. So
 * this asks the kernel which process holds it. Where the kernel does not tell, the answer is enough
 * (see docs/services.md).
 */
export async function checkReadiness(settings: ServiceSettings, { keeper }: RunRecord): Promise<Readiness> {
  const { port, ready } = settings
  if (port !== undefined) {
    const answer = await probe(settings, port)
    if (answer.address === undefined) return { kind: 'not-yet', error: answer.error }
    const who = await portHolder(answer.address, port, keeper?.startToken)
    if (who.whose === 'stranger') return { kind: 'stranger', who }
  }
  return ready ? callReady(ready) : { kind: 'ready' }
}

/** Connects to the port. Returns the address that answers, or the error. */
export async function probe(
  { host }: ServiceSettings,
  port: number,
): Promise<{ address?: string | undefined; error?: Error }> {
  const socket = connect({ host, port })
  const answer = new Promise<{ address?: string | undefined; error?: Error }>((resolve) => {
    socket.once('connect', () => resolve({ address: socket.remoteAddress ?? host }))
    socket.on('error', (error) => resolve({ error }))
  })
  const result = await within(answer, PROBE_MS, undefined)
  socket.destroy()
  return result === LATE ? { error: new Error(`port ${port} did not answer within ${PROBE_MS} ms`) } : result
}

/** Returns the process that holds a port while no instance of the service exists. */
export async function squatter(address: string, port: number): Promise<Stranger> {
  const who = await portHolder(address, port, undefined)
  return who.whose === 'stranger' ? who : { whose: 'stranger' }
}

/**
 * Calls the caller's check. A rejection means: not ready yet.
 *
 * For example `() => fetch(url).then((r) => r.ok)` rejects until the service listens.
 */
async function callReady(ready: NonNullable<ServiceSettings['ready']>): Promise<Readiness> {
  let answer: unknown
  try {
    answer = await ready()
  } catch (error) {
    return { kind: 'not-yet', error: error instanceof Error ? error : new Error(String(error)) }
  }
  if (typeof answer === 'boolean') return { kind: answer ? 'ready' : 'not-yet' }
  throw codedError(
    TypeError,
    'ERR_INVALID_RETURN_VALUE',
    `options.ready must return a boolean or a promise of a boolean, got a value of type ${typeof answer}.`,
  )
}
