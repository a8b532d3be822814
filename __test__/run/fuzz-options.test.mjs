// Calls every public function with random values. It must throw or reject with a code, start
// nothing and record nothing.
// Each function runs in its own process, so that a crash shows. SEED=<seed> repeats the values of a
// failed run.
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert, describe, script, test } from '../support/prelude.mjs'
import { seedsFor } from '../support/random.mjs'
import { forScripts, NO_SHELL, posixOnly, removeFolder } from '../support/system.mjs'

/** Calls per function. `TURNS=1000` sets more. Functions that can start a process are slow. */
const slow = Number(process.env.TURNS ?? 60)
const quick = Number(process.env.TURNS ?? 150)

const functions = {
  spawnOwned: slow * 3,
  runToEnd: slow,
  pty: slow,
  run: quick,
  cancel: quick,
  registerProcess: quick,
  unregisterProcess: quick,
  list: quick,
  survey: slow,
  adopt: slow,
  reapOrphans: quick,
  findOrphans: slow,
  endOrphans: slow,
  watchOrphans: quick,
  ensureService: quick,
  stopService: quick,
  shutdown: slow,
  installSignalHandlers: quick,
  createSupervisor: quick,
  captureStartToken: quick,
  isSameProcess: quick,
}

describe('random values do no harm to', posixOnly(NO_SHELL, { timeout: 1_200_000, concurrency: 2 }), () => {
  for (const [name, turns] of Object.entries(functions)) {
    test(name, { timeout: 600_000 }, async (t) => {
      for (const seed of seedsFor('options', name)) await callWithRandomValues(t, name, turns, seed)
    })
  }
})

async function callWithRandomValues(t, name, turns, seed) {
  const folder = mkdtempSync(join(tmpdir(), 'anything-'))
  // A command can run as another user, and must be able to write here too.
  chmodSync(folder, 0o777)
  t.after(() => removeFolder(folder))
  const args = [...forScripts, script('says-anything.mjs'), name, String(turns), folder]
  const { code, signal, stdout, stderr } = await ended(args, folder, seed)
  const again = `SEED=${seed} repeats this run`
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, `${again}\n${stderr.slice(-4000)}`)
  const lines = stdout.trim().split('\n')
  const { complaints, refused } = JSON.parse(lines.pop())
  assert.equal(complaints, 0, `${again}\n${lines.join('\n')}`)
  assert.ok(refused > 0, 'at least one call must be refused')
}

function ended(args, cwd, seed) {
  const child = spawn(process.execPath, args, { cwd, env: { ...process.env, SEED: String(seed) } })
  const output = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'])
    child[name].setEncoding('utf8').on('data', (text) => {
      output[name] += text
    })
  return new Promise((resolve, reject) => {
    child.on('error', reject).on('close', (code, signal) => resolve({ code, signal, ...output }))
  })
}
