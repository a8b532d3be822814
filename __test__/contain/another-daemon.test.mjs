// A command can make a daemon start a process. If the daemon is older than the run, the process
// belongs to the daemon, and the run never ends it.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { spawnOwned } from 'spawn-owned'
import { assertAlive } from '../support/bots.mjs'
import { assert, openWitness, program, test } from '../support/prelude.mjs'

const connectsToDaemon = `require('node:net').connect(Number(process.argv[1]), '127.0.0.1').on('data', () => {})`

test('a process that another daemon starts for a run survives the cancel of the run', async (t) => {
  const witness = openWitness(t)
  let started
  const daemon = createServer(() => {
    started = spawn(program('stays'), [witness.path], { stdio: 'ignore' })
  }).listen(0, '127.0.0.1')
  t.after(() => daemon.close())
  await once(daemon, 'listening')
  const run = spawnOwned(process.execPath, ['-e', connectsToDaemon, String(daemon.address().port)])
  await witness.ready(1)
  const { reason, escaped, survivors } = await run.cancel()
  assert.deepEqual([reason, escaped, survivors], ['manual-cancel', [], []])
  assertAlive(witness)
  started.kill('SIGKILL')
  await witness.gone(10_000)
})
