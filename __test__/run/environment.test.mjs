// The environment: what a command gets, and that the addon never calls getenv, which races with
// process.env.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { SHARE_ENV, Worker } from 'node:worker_threads'
import { freshRegistry, supervise } from '../support/bots.mjs'
import { assert, describe, library, options, script, test } from '../support/prelude.mjs'
import { isLinux, isNode } from '../support/system.mjs'

const NEEDS_PRELOAD = { ...options, skip: !(isLinux && isNode) && 'needs LD_PRELOAD and Node' }

/** Runs a bot, and resolves with its output and the names that its addon has passed to getenv. */
async function getenvCalls(file, ...args) {
  const child = spawn(process.execPath, [script(file), ...args], {
    stdio: ['ignore', 'pipe', 'inherit', 'pipe'],
    env: { ...process.env, LD_PRELOAD: library('reports-getenv'), GETENV_REPORT: '3' },
  })
  const [printed, names, [code, signal]] = await Promise.all([
    text(child.stdout),
    text(child.stdio[3]),
    once(child, 'exit'),
  ])
  assert.deepEqual([code, signal], [0, null])
  return { printed, names: names.split('\n').filter(Boolean) }
}

describe('the addon', () => {
  test('never calls getenv', NEEDS_PRELOAD, async () => {
    const { printed, names } = await getenvCalls('writes-its-environment.mjs', freshRegistry(), '6')
    assert.equal(printed, 'through\n')
    assert.deepEqual(names, [])
  })
})

describe('a command gets', () => {
  /** Returns the environment of a command that a worker has started. */
  const inWorker = async (workerOptions) => {
    const worker = new Worker(
      `const { parentPort } = require('node:worker_threads')
      process.env.SET_IN_WORKER = 'yes'
      const run = require('spawn-owned').spawnOwned(process.execPath, ['-p', 'JSON.stringify(process.env)'])
      let output = ''
      run.stdout.on('data', (data) => { output += data })
      run.wait().then(() => parentPort.postMessage(JSON.parse(output)))`,
      { eval: true, ...workerOptions },
    )
    const [env] = await once(worker, 'message')
    await worker.terminate()
    return env
  }

  test('the environment of the worker that starts it', options, async () => {
    const env = await inWorker({ env: { PATH: process.env.PATH, ONLY_IN_WORKER: '1' } })
    assert.deepEqual([env.SET_IN_WORKER, env.ONLY_IN_WORKER], ['yes', '1'])
    assert.equal(process.env.SET_IN_WORKER, undefined)
  })

  test('the shared environment in a worker with SHARE_ENV', options, async (t) => {
    t.after(() => delete process.env.SET_IN_WORKER)
    process.env.SET_OUTSIDE = 'too'
    t.after(() => delete process.env.SET_OUTSIDE)
    const env = await inWorker({ env: SHARE_ENV })
    assert.deepEqual([env.SET_IN_WORKER, env.SET_OUTSIDE], ['yes', 'too'])
  })

  test('the environment at the time of the call', options, async (t) => {
    const supervisor = supervise(freshRegistry())
    t.after(() => delete process.env.CHANGES)
    for (const value of ['first', 'second', 'ünïcode = too']) {
      process.env.CHANGES = value
      const run = supervisor.spawnOwned(process.execPath, ['-p', 'process.env.CHANGES'])
      assert.equal(await text(run.stdout), `${value}\n`)
    }
  })
})
