import type { OrphanEvent, OrphanEventName } from '../../../index.js'
import type { Context, Outcome } from '../terminal.js'
import { printable } from '../text.js'
import { given } from './kill.js'

const EVENTS: readonly OrphanEventName[] = [
  'orphan:detected',
  'orphan:killed',
  'orphan:skipped',
  'orphan:failed',
]

/** Until Ctrl-C. */
export async function watch(context: Context): Promise<Outcome> {
  const { request, supervisor } = context
  const [intervalMs, maxAgeMs] = [request.number('interval'), request.number('max-age')]
  for (const name of EVENTS) supervisor.on(name, (event: OrphanEvent) => tell(context, name, event))
  const watched = supervisor.watchOrphans({
    ...given(context),
    autoKill: request.flag('auto-kill'),
    ...(intervalMs !== undefined && { intervalMs }),
    ...(maxAgeMs !== undefined && { maxAgeMs }),
  })
  if (!context.json) context.say(`Watching ${supervisor.registryPath}; Ctrl-C ends it.`)
  // The watch itself keeps nobody from ending.
  const awake = setInterval(() => {}, 2 ** 30)
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => resolve())
  })
  clearInterval(awake)
  watched.stop()
  // What is being ended is part of the summary.
  await watched.check().catch(() => {})
  const { orphansDetected, orphansKilled } = watched.stats
  if (!context.json) context.say(`${orphansDetected} orphans detected, ${orphansKilled} ended.`)
  return 0
}

function tell({ json, print, printJson }: Context, name: OrphanEventName, event: OrphanEvent): void {
  if (json) printJson({ type: name, at: new Date().toISOString(), ...event })
  else print(printable(`${new Date().toISOString()} ${name.slice(7).toUpperCase()} ${JSON.stringify(event)}`))
}
