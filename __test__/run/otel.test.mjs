// examples/otel: what the official SDK exports for four runs.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { builtExample } from '../support/examples.mjs'
import { assert, test } from '../support/prelude.mjs'
import { isWindows } from '../support/system.mjs'

const main = builtExample('otel', 'main')
const ERROR = 2

test('the SDK exports a span for each run, and the counters', { timeout: 120_000 }, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [main, '--json'])
  const { spans, metrics } = JSON.parse(stdout)

  const exported = spans.map(({ name, attributes: is, events, status }) => [
    ...[name, is['run.reason'], is['process.exit.code'], is['session.id'], is['run.label.agent']],
    ...[events.filter((event) => event !== 'output'), status.code === ERROR ? status.message : undefined],
  ])
  const session = 'chat-42'
  const deadline = ['started', 'deadline-warning', 'exiting']
  assert.deepEqual(exported, [
    ['run', 'exit', 0, session, 'polite', ['started'], undefined],
    ['run', 'overall-timeout', undefined, session, undefined, deadline, 'turn timed out after 3s'],
    ['run', 'manual-cancel', undefined, session, undefined, ['started', 'exiting'], undefined],
    ['run', 'spawn-error', undefined, undefined, undefined, [], 'spawn no-such-agent ENOENT'],
  ])
  // A span begins when the bot gets the event of its run, which can be later than the start of the
  // deadline.
  assert.ok(spans[1].durationMs >= 2000, `${spans[1].durationMs} ms`)
  assert.equal(new Set(spans.map(({ attributes }) => attributes['run.id'])).size, 4)

  const figure = (name, labels = {}) =>
    metrics.find(
      (it) => it.name === name && Object.entries(labels).every(([key, value]) => it[key] === value),
    ).value
  assert.equal(figure('run_spawn_total'), 3)
  assert.equal(figure('run_exit_total', { reason: 'exit' }), 1)
  assert.equal(figure('run_exit_total', { reason: 'overall-timeout' }), 1)
  assert.equal(figure('run_exit_total', { reason: 'spawn-error' }), 1)
  assert.equal(figure('run_exit_total', { reason: 'lost' }), 0)
  assert.equal(figure('run_timeout_total', { type: 'overall' }), 1)
  // On Windows, a process without a console cannot get a signal, so it is killed at once.
  const [signalled, killed] = ['signal', 'kill'].map((mode) => figure('run_cleanup_kill_total', { mode }))
  assert.deepEqual(isWindows ? signalled + killed : signalled, 2)
  assert.equal(figure('run_live'), 0)
})
