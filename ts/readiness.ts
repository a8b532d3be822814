// Whether a service that is alive does its work.

import { connect } from 'node:net'
import type { RunRecord } from '../index.js'
import { codedError } from './errors.js'
import { type PortHolder, portHolder } from './native.js'
import type { ServiceWish } from './service-options.js'
import { LATE, within } from './waiting.js'

/** Nobody on this machine takes longer to answer, unless it hangs. */
const PROBE_MS = 1000

export type Stranger = Extract<PortHolder, { whose: 'stranger' }>

export type Readiness =
  | { kind: 'ready' }
  | { kind: 'not-yet'; error?: Error | undefined }
  /** Somebody else has its port. */
  | { kind: 'stranger'; who: Stranger }

/**
 * A port that answers proves nothing: somebody may have been faster than the service. So the kernel is asked who it is, and where
 * that cannot be told the port alone has to do (see docs/services.md).
 */
export async function look(wish: ServiceWish, { keeper }: RunRecord): Promise<Readiness> {
  const { port, ready } = wish
  if (port !== undefined) {
    const answer = await probe(wish, port)
    if (answer.address === undefined) return { kind: 'not-yet', error: answer.error }
    const who = await portHolder(answer.address, port, keeper?.startToken)
    if (who.whose === 'stranger') return { kind: 'stranger', who }
  }
  return ready ? ask(ready) : { kind: 'ready' }
}

/** Where the port answers; not given if it does not. */
export async function probe(
  { host }: ServiceWish,
  port: number,
): Promise<{ address?: string | undefined; error?: Error }> {
  const socket = connect({ host, port })
  const answer = new Promise<{ address?: string | undefined; error?: Error }>((resolve) => {
    socket.once('connect', () => resolve({ address: socket.remoteAddress ?? host }))
    socket.on('error', (error) => resolve({ error }))
  })
  const result = await within(answer, PROBE_MS, undefined)
  socket.destroy()
  return result === LATE ? { error: new Error(`port ${port} has not answered in time`) } : result
}

/** Who is at a port at which nobody of ours can be. */
export async function squatter(address: string, port: number): Promise<Stranger> {
  const who = await portHolder(address, port, undefined)
  return who.whose === 'stranger' ? who : { whose: 'stranger' }
}

/** A check that fails has not found it ready: `() => fetch(url).then((r) => r.ok)` rejects until somebody listens. */
async function ask(ready: NonNullable<ServiceWish['ready']>): Promise<Readiness> {
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
    `options.ready must return true or false, or a promise of it; it returned ${typeof answer}.`,
  )
}
