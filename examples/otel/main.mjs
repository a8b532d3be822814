// node examples/otel/main.mjs [--json]
//
// Four short runs, observed with the official SDK, and what it exports: for people, or as JSON.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { createSupervisor } from 'spawn-owned'
import { observe } from './observe.mjs'

// In a bot these are OTLP exporters.
const spanExporter = new InMemorySpanExporter()
const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spanExporter)] })
const reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 60_000 })
const meters = new MeterProvider({ readers: [reader] })

const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-otel-'))
process.on('exit', () => {
  try {
    rmSync(folder, { recursive: true, force: true })
  } catch {
    // On Windows what is still open stays.
  }
})
const supervisor = createSupervisor({ registryPath: join(folder, 'process-registry.json') })
const stop = observe(supervisor, {
  tracer: tracers.getTracer('spawn-owned'),
  meter: meters.getMeter('spawn-owned'),
})

const sh = (line, options) => supervisor.spawnOwned('sh', ['-c', line], { sessionId: 'chat-42', ...options })
await sh('echo hello', { labels: { agent: 'polite' } }).wait()
await sh('sleep 60', { timeoutMs: 3000 }).wait()
await sh('sleep 60').cancel()
await supervisor
  .spawnOwned('no-such-agent')
  .on('error', () => {})
  .wait()

await meters.forceFlush()
stop()
print(spanExporter.getFinishedSpans(), figures(metricExporter.getMetrics()))
await Promise.all([tracers.shutdown(), meters.shutdown()])

/** `name{label}: value`, of the last collection. */
function figures(collections) {
  const metrics = collections.at(-1).scopeMetrics.flatMap((scope) => scope.metrics)
  return metrics.flatMap(({ descriptor, dataPoints }) =>
    dataPoints.map(({ value, attributes }) => ({ name: descriptor.name, ...attributes, value })),
  )
}

function print(spans, metrics) {
  const told = spans.map(({ name, attributes, events, status, duration: [seconds, nanoseconds] }) => ({
    name,
    attributes,
    events: events.map((event) => event.name),
    status,
    durationMs: seconds * 1000 + nanoseconds / 1e6,
  }))
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify({ spans: told, metrics }))
    return
  }
  for (const { attributes, events, durationMs } of told)
    console.log(
      `span  ${attributes['run.reason'].padEnd(16)} ${durationMs.toFixed(0).padStart(5)} ms  ${events.join(' → ')}`,
    )
  for (const { name, value, ...labels } of metrics.filter(({ value }) => value > 0))
    console.log(`count ${name} ${Object.values(labels).join()} ${value}`)
}
