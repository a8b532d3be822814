import type { OrphanEvent, OrphanEventName } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { counted, printable } from '../text.js'
import { formatAge } from '../units.js'
import { given } from './kill.js'

const EVENTS: readonly OrphanEventName[] = [
  'orphan:detected',
  'orphan:killed',
  'orphan:skipped',
  'orphan:failed',
]

/** Watches until Ctrl-C. */
export async function watch(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [intervalMs, maxAgeMs] = [request.number('interval'), request.number('max-age')]
  for (const name of EVENTS) supervisor.on(name, (event: OrphanEvent) => printEvent(context, name, event))
  const watched = supervisor.watchOrphans({
    ...given(context),
    autoKill: request.flag('auto-kill'),
    ...(intervalMs !== undefined && { intervalMs }),
    ...(maxAgeMs !== undefined && { maxAgeMs }),
  })
  if (!context.json) {
    const effect = request.flag('auto-kill') ? 'Orphans are terminated.' : 'Orphans are only reported.'
    context.say(`Watching ${supervisor.registryPath}. ${effect} Press Ctrl-C to stop.`)
  }
  // The watch itself does not keep the event loop alive.
  const awake = setInterval(() => {}, 2 ** 30)
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => resolve())
  })
  clearInterval(awake)
  watched.stop()
  // The summary includes the orphans that are being terminated now.
  await watched.check().catch(() => {})
  const { orphansDetected, orphansKilled } = watched.stats
  if (!context.json) context.say(`${counted(orphansDetected, 'orphan')} detected, ${orphansKilled} ended.`)
  return 0
}

function printEvent({ json, print, printJson }: Context, name: OrphanEventName, event: OrphanEvent): void {
  if (json) printJson({ type: name, at: new Date().toISOString(), ...event })
  else print(printable(lineOf(name, event)))
}

/** Returns a line for people. Pure. */
export function lineOf(name: OrphanEventName, event: OrphanEvent): string {
  const { atMs, pid, runId, command, ageMs, status, reason } = event
  const what = runId === null ? `pid ${pid}` : `run ${runId} (pid ${pid})`
  const age = ageMs === null ? '' : `, ${formatAge(ageMs)} old`
  const at = new Date(atMs).toISOString()
  return `${at} ${name.slice('orphan:'.length)} ${what}${age}, ${status}: ${reason}. Command: ${command}`
}
