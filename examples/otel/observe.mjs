// Runs in OpenTelemetry: one span per run, and the counters of a supervisor. Works with any provider; exporters are not its business.
//
//   const stop = observe(supervisor, { tracer, meter })

import { SpanStatusCode } from '@opentelemetry/api'

/** Reasons for which nobody is to blame. */
const FINE = new Set(['exit', 'manual-cancel', 'shutdown'])

export function observe(supervisor, { tracer, meter }) {
  const spans = new Map()
  const listener = (event) => trace(tracer, spans, event)
  supervisor.on('event', listener)
  const stopCounting = count(supervisor, meter)
  return () => {
    supervisor.off('event', listener)
    stopCounting()
    for (const span of spans.values()) span.end()
  }
}

/** From `spawn` to `exited`; what happens in between is an event of the span. */
function trace(tracer, spans, event) {
  const { type, runId, atMs } = event
  if (type === 'spawn') {
    spans.set(runId, tracer.startSpan('run', { startTime: atMs, attributes: attributesOf(event) }))
    return
  }
  if (type === 'exited') {
    // A command that cannot be started has only an end.
    const span =
      spans.get(runId) ?? tracer.startSpan('run', { startTime: atMs, attributes: attributesOf(event) })
    spans.delete(runId)
    finish(span, event)
    return
  }
  spans.get(runId)?.addEvent(type, detailsOf(event), atMs)
}

function finish(span, { exit, atMs }) {
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

function attributesOf({ runId, pid, sessionId, scopeKey, labels, commandPreview }) {
  const given = {
    'run.id': runId,
    'process.pid': pid,
    'session.id': sessionId,
    'run.scope': scopeKey,
    'run.command': commandPreview,
    ...Object.fromEntries(Object.entries(labels).map(([name, value]) => [`run.label.${name}`, value])),
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

/** What the warning, the end or the escape is about. */
function detailsOf({ reason, deadline, limitMs, remainingMs, escaped }) {
  const given = { reason, deadline, limitMs, remainingMs, escaped: escaped?.length }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

const LABELS = { run_exit_total: 'reason', run_timeout_total: 'type', run_cleanup_kill_total: 'mode' }

/** The supervisor counts; whoever collects asks it. */
function count(supervisor, meter) {
  const names = Object.keys(supervisor.metrics())
  const instruments = names.map((name) =>
    name.endsWith('_total') ? meter.createObservableCounter(name) : meter.createObservableGauge(name),
  )
  const collect = (result) => {
    const metrics = supervisor.metrics()
    names.forEach((name, index) => {
      const label = LABELS[name]
      const values = label ? Object.entries(metrics[name]) : [[undefined, metrics[name]]]
      for (const [of, value] of values) result.observe(instruments[index], value, label && { [label]: of })
    })
  }
  meter.addBatchObservableCallback(collect, instruments)
  return () => meter.removeBatchObservableCallback(collect, instruments)
}
