// Reports runs to OpenTelemetry: one span for each run, and the counters of a supervisor. It works
// with any provider and any exporter.
//
//   const stop = observe(supervisor, { tracer, meter })

import {
  type Attributes,
  type BatchObservableResult,
  type Meter,
  type Span,
  SpanStatusCode,
  type Tracer,
} from '@opentelemetry/api'
import type { AboutRun, ExitedEvent, OwnedEvent, RunEvent, Supervisor } from 'spawn-owned'

/** Reasons that are not errors. */
const FINE = new Set(['exit', 'manual-cancel', 'shutdown'])

export function observe(
  supervisor: Supervisor,
  { tracer, meter }: { tracer: Tracer; meter: Meter },
): () => void {
  const spans = new Map<string, Span>()
  const listener = (event: OwnedEvent) => {
    if ('labels' in event) trace(tracer, spans, event)
  }
  supervisor.on('event', listener)
  const stopCounting = count(supervisor, meter)
  return () => {
    supervisor.off('event', listener)
    stopCounting()
    for (const span of spans.values()) span.end()
  }
}

/** The span lasts from `spawn` to `exited`. Other events of the run become events of the span. */
function trace(tracer: Tracer, spans: Map<string, Span>, event: RunEvent): void {
  const { runId, atMs } = event
  if (event.type === 'spawn') {
    spans.set(runId, tracer.startSpan('run', { startTime: atMs, attributes: attributesOf(event) }))
    return
  }
  if (event.type === 'exited') {
    // A command that cannot be started emits only `exited`.
    const span =
      spans.get(runId) ?? tracer.startSpan('run', { startTime: atMs, attributes: attributesOf(event) })
    spans.delete(runId)
    finish(span, event)
    return
  }
  spans.get(runId)?.addEvent(event.type, detailsOf(event), atMs)
}

function finish(span: Span, { exit, atMs }: ExitedEvent): void {
  const { reason, exitCode, signal, message, escaped, survivors } = exit
  span.setAttributes({
    'run.reason': reason,
    'run.escaped': escaped.length,
    'run.survivors': survivors.length,
    ...(exitCode === null ? {} : { 'process.exit.code': exitCode }),
    ...(signal === null ? {} : { 'run.signal': signal }),
  })
  const failed = !FINE.has(reason) || survivors.length > 0 || (reason === 'exit' && exitCode !== 0)
  if (failed) span.setStatus({ code: SpanStatusCode.ERROR, message })
  span.end(atMs)
}

function attributesOf(event: AboutRun): Attributes {
  const { runId, pid, sessionId, scopeKey, labels } = event
  return {
    'run.id': runId,
    'process.pid': pid,
    'session.id': sessionId,
    'run.scope': scopeKey,
    'run.command': 'commandPreview' in event ? String(event.commandPreview) : undefined,
    ...Object.fromEntries(Object.entries(labels).map(([name, value]) => [`run.label.${name}`, value])),
  }
}

/** The attributes of a span event: of a warning, of `exiting`, or of an escape. */
function detailsOf(event: RunEvent): Attributes {
  if (event.type === 'exiting') return { reason: event.reason }
  if (event.type === 'escape') return { escaped: event.escaped.length }
  if (event.type !== 'deadline-warning') return {}
  const { deadline, limitMs, remainingMs } = event
  return { deadline, limitMs, remainingMs }
}

const LABELS: Record<string, string> = {
  run_exit_total: 'reason',
  run_timeout_total: 'type',
  run_cleanup_kill_total: 'mode',
}

/**
 * Creates instruments that read the supervisor's counters at each collection. Returns a stop
 * function.
 */
function count(supervisor: Supervisor, meter: Meter): () => void {
  const instruments = Object.keys(supervisor.metrics()).map((name) => ({
    name,
    instrument: name.endsWith('_total')
      ? meter.createObservableCounter(name)
      : meter.createObservableGauge(name),
  }))
  const collect = (result: BatchObservableResult) => {
    const metrics = new Map<string, number | Record<string, number>>(Object.entries(supervisor.metrics()))
    for (const { name, instrument } of instruments) {
      const value = metrics.get(name) ?? 0
      if (typeof value === 'number') result.observe(instrument, value)
      else
        for (const [label, one] of Object.entries(value))
          result.observe(instrument, one, { [LABELS[name] ?? 'kind']: label })
    }
  }
  const all = instruments.map(({ instrument }) => instrument)
  meter.addBatchObservableCallback(collect, all)
  return () => meter.removeBatchObservableCallback(collect, all)
}
