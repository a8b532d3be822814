// What a command has a daemon start that was there before is the daemon's. Not a promise, and so no process of somebody else's is ended.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { spawnOwned } from 'spawn-owned'
import { assertAlive } from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { openWitness } from './support/witness.mjs'

const asks = `require('node:net').connect(Number(process.argv[1]), '127.0.0.1').on('data', () => {})`

test('what another daemon has started for a run lives on when that is cancelled', async (t) => {
  const witness = openWitness(t)
  let started
  const daemon = createServer(() => {
    started = spawn(program('stays'), [witness.path], { stdio: 'ignore' })
  }).listen(0, '127.0.0.1')
  t.after(() => daemon.close())
  await once(daemon, 'listening')
  const run = spawnOwned(process.execPath, ['-e', asks, String(daemon.address().port)])
  await witness.ready(1)
  const { reason, escaped, survivors } = await run.cancel()
  assert.deepEqual([reason, escaped, survivors], ['manual-cancel', [], []])
  assertAlive(witness)
  started.kill('SIGKILL')
  await witness.gone(10_000)
})
