// node examples/otel/main.mts [--json]
//
// Runs four short commands, observes them with the official SDK, and prints the exported spans and
// metrics, as text or as JSON.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics'
import {
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import { createSupervisor, type SpawnOwnedOptions } from 'spawn-owned'
import { observe } from './observe.mts'

// A real bot uses OTLP exporters instead.
const spanExporter = new InMemorySpanExporter()
const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const tracers = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter: spanExporter })] })
const reader = new PeriodicExportingMetricReader({ exporter: metricExporter, exportIntervalMillis: 60_000 })
const meters = new MeterProvider({ readers: [reader] })

const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-otel-'))
process.on('exit', () => {
  try {
    rmSync(folder, { recursive: true, force: true })
  } catch {
    // On Windows, open files cannot be deleted.
  }
})
const supervisor = createSupervisor({ registryPath: join(folder, 'process-registry.json') })
const stop = observe(supervisor, {
  tracer: tracers.getTracer('spawn-owned'),
  meter: meters.getMeter('spawn-owned'),
})

const sh = (line: string, options: SpawnOwnedOptions = {}) =>
  supervisor.spawnOwned('sh', ['-c', line], { sessionId: 'chat-42', ...options })
await sh('echo hello', { labels: { agent: 'polite' } }).wait()
await sh('sleep 60', { timeoutMs: 3000 }).wait()
await sh('sleep 60').cancel()
await supervisor.spawnOwned('no-such-agent').wait()

await Promise.all([tracers.forceFlush(), meters.forceFlush()])
stop()
print(spanExporter.getFinishedSpans(), figures(metricExporter.getMetrics()))
await Promise.all([tracers.shutdown(), meters.shutdown()])

interface Figure {
  name: string
  value: number
  [label: string]: unknown
}

/** The values of the last collection, one object for each name and label. */
function figures(collections: ResourceMetrics[]): Figure[] {
  const metrics = collections.at(-1)?.scopeMetrics.flatMap((scope) => scope.metrics) ?? []
  return metrics.flatMap(({ descriptor, dataPoints }) =>
    dataPoints.map(({ value, attributes }) => ({
      ...attributes,
      name: descriptor.name,
      value: Number(value),
    })),
  )
}

function print(spans: ReadableSpan[], metrics: Figure[]): void {
  const printed = spans.map(({ name, attributes, events, status, duration: [seconds, nanoseconds] }) => ({
    name,
    attributes,
    events: events.map((event) => event.name),
    status,
    durationMs: seconds * 1000 + nanoseconds / 1e6,
  }))
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify({ spans: printed, metrics }))
    return
  }
  for (const { attributes, events, durationMs } of printed)
    console.log(
      `span  ${String(attributes['run.reason']).padEnd(16)} ${durationMs.toFixed(0).padStart(5)} ms  ${events.join(' → ')}`,
    )
  for (const { name, value, ...labels } of metrics.filter(({ value }) => value > 0))
    console.log(`count ${name} ${Object.values(labels).join()} ${value}`)
}
