// Every public function is called with anything at all: it throws or rejects with an error that says what it is, and then nothing was
// started and nothing is recorded. In a process of its own, so that a crash is seen. SEED=<number> repeats a failed run's choices.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { script } from './support/fixtures.mjs'
import { seed } from './support/random.mjs'
import { forScripts, NO_SHELL, posixOnly, removeFolder } from './support/system.mjs'

/** How often each; `TURNS=1000` for more. Those that may start something take their time. */
const slow = Number(process.env.TURNS ?? 60)
const quick = Number(process.env.TURNS ?? 150)

const functions = {
  spawnOwned: slow * 3,
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

describe('anything at all, said to', posixOnly(NO_SHELL, { timeout: 1_200_000, concurrency: 2 }), () => {
  for (const [name, turns] of Object.entries(functions)) {
    test(name, { timeout: 600_000 }, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), 'anything-'))
      // Commands may be run as somebody else, who is to leave a trace as well.
      chmodSync(folder, 0o777)
      t.after(() => removeFolder(folder))
      const args = [...forScripts, script('says-anything.mjs'), name, String(turns), folder]
      const { code, signal, stdout, stderr } = await ended(args, folder)
      const again = `SEED=${seed} repeats it`
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, `${again}\n${stderr.slice(-4000)}`)
      const lines = stdout.trim().split('\n')
      const { complaints, refused } = JSON.parse(lines.pop())
      assert.equal(complaints, 0, `${again}\n${lines.join('\n')}`)
      assert.ok(refused > 0, 'what is said is not all fine')
    })
  }
})

function ended(args, cwd) {
  const child = spawn(process.execPath, args, { cwd, env: { ...process.env, SEED: String(seed) } })
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'])
    child[name].setEncoding('utf8').on('data', (text) => {
      said[name] += text
    })
  return new Promise((resolve, reject) => {
    child.on('error', reject).on('close', (code, signal) => resolve({ code, signal, ...said }))
  })
}
