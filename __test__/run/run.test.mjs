// The lifecycle of a run: its states, its deadlines, and its exit.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { cancel, isSameProcess } from 'spawn-owned'
import { record, spawnOwned } from '../fixtures/side-by-side.mjs'
import { assert, describe, FOR_EVER, openWitness, program, script, test } from '../support/prelude.mjs'
import {
  GRACE_FOR_ALL_MS,
  isWindows,
  isWine,
  linuxOnly,
  NO_PROC,
  NO_SESSIONS,
  NO_SHELL,
  NO_SIGNALS,
  NO_WORKERS_END,
  notInDeno,
  notUnderWine,
  OTHER_ARGUMENTS,
  posixOnly,
  WINE_CANNOT_ASK,
} from '../support/system.mjs'

const options = { timeout: 20_000 }

/**
 * Starts a fixture that holds the witness, and resolves when `processes` of its processes are
 * ready.
 */
async function standing(t, name, processes, more) {
  const witness = openWitness(t)
  const child = spawnOwned(program(name), [witness.path], { stdio: ['pipe', 'ignore', 'ignore'], ...more })
  t.after(() => child.stdin.destroy())
  await witness.ready(processes)
  return { child, witness }
}

describe('the states are right', () => {
  /** Records the state after the start and at each event. */
  function states(child) {
    const seen = [child.state]
    for (const event of ['spawn', 'error', 'exit']) child.on(event, () => seen.push(event, child.state))
    return seen
  }

  test('for a command that exits', options, async () => {
    const child = spawnOwned('true')
    const seen = states(child)
    await child.wait()
    assert.deepEqual(seen, ['running', 'spawn', 'running', 'exit', 'exiting'])
    assert.equal(child.state, 'exited')
  })

  test('for a command that cannot be started', options, async () => {
    const child = spawnOwned('nonexistent-command')
    const seen = states(child)
    await child.wait()
    assert.deepEqual(seen, ['starting', 'error', 'exited'])
    assert.equal(child.state, 'exited')
  })

  test('for a run that is cancelled', options, async () => {
    const child = spawnOwned('cat')
    const seen = states(child)
    const cancelled = child.cancel()
    assert.equal(child.state, 'exiting')
    await cancelled
    assert.deepEqual(seen, ['running', 'spawn', 'exiting', 'exit', 'exiting'])
    child.cancel()
    child.kill()
    assert.equal(child.state, 'exited', 'the state is final')
  })

  test('for a run whose tree takes time to end', notUnderWine(WINE_CANNOT_ASK, options), async (t) => {
    const { child, witness } = await standing(t, 'ignores-sigterm', 2, { graceMs: FOR_EVER })
    child.stdin.end()
    await once(child, 'exit')
    assert.equal(child.state, 'exiting')
    assert.equal(witness.isGone(), false)
    await child.cancel({ signal: 'SIGKILL' })
    assert.equal(child.state, 'exited')
    assert.ok(witness.isGone())
  })
})

describe('the exit is right for', () => {
  const usual = {
    ok: false,
    exitCode: null,
    signal: null,
    timedOut: false,
    noOutputTimedOut: false,
    leftovers: [],
    escaped: [],
    survivors: [],
  }
  const sh = (line, more) => () => spawnOwned('sh', ['-c', line], more)
  const cat = (more) => () => spawnOwned('cat', more)
  const after = (start, act) => () => {
    const child = start()
    act(child)
    return child
  }
  const abort = AbortSignal.abort()
  const timeout = { reason: 'overall-timeout', timedOut: true, signal: 'SIGTERM' }
  const rows = {
    'exit 0': [sh('exit 0'), { reason: 'exit', ok: true, exitCode: 0, message: 'exited with code 0' }],
    'exit 3': [sh('exit 3'), { reason: 'exit', exitCode: 3, message: 'exited with code 3' }],
    'its own signal': [
      sh('kill -INT $$'),
      { reason: 'signal', signal: 'SIGINT', message: 'ended by SIGINT' },
    ],
    'kill()': [
      after(cat(), (child) => child.kill()),
      { reason: 'signal', signal: 'SIGTERM', message: 'ended by SIGTERM' },
    ],
    'cancel()': [
      after(cat(), (child) => child.cancel()),
      { reason: 'manual-cancel', signal: 'SIGTERM', message: 'cancelled' },
    ],
    'an AbortSignal': [
      after(cat({ signal: abort }), (child) => child.on('error', () => {})),
      { reason: 'manual-cancel', signal: 'SIGTERM', message: 'cancelled' },
    ],
    'a cancel that the command answers': [
      after(sh('trap "exit 9" TERM; echo; read _'), (child) =>
        child.stdout.once('data', () => child.cancel()),
      ),
      { reason: 'manual-cancel', exitCode: 9, message: 'cancelled' },
    ],
    'no such command': [
      after(
        () => spawnOwned('/nonexistent/command'),
        (child) => child.on('error', () => {}),
      ),
      { reason: 'spawn-error', message: 'spawn /nonexistent/command ENOENT' },
    ],
    timeoutMs: [cat({ timeoutMs: 200 }), { ...timeout, message: 'turn timed out after 0.2s' }],
    'a timeout in whole seconds': [
      cat({ timeoutMs: 1000 }),
      { ...timeout, message: 'turn timed out after 1s' },
    ],
    "Node's timeout": [cat({ timeout: 50 }), { ...timeout, message: 'turn timed out after 0.05s' }],
    'both timeouts if timeoutMs is sooner': [
      cat({ timeout: FOR_EVER, timeoutMs: 50, killSignal: 'SIGINT' }),
      { ...timeout, message: 'turn timed out after 0.05s' },
    ],
    "both timeouts if Node's is sooner": [
      cat({ timeout: 50, timeoutMs: FOR_EVER, killSignal: 'SIGINT' }),
      { ...timeout, signal: 'SIGINT', message: 'turn timed out after 0.05s' },
    ],
    'a deadline that was not reached': [
      sh('exit 4', { timeoutMs: Number.MAX_SAFE_INTEGER }),
      { reason: 'exit', exitCode: 4, message: 'exited with code 4' },
    ],
    'no deadline': [
      sh('exit 4', { timeoutMs: 0 }),
      { reason: 'exit', exitCode: 4, message: 'exited with code 4' },
    ],
  }
  const notOnWindows = { 'its own signal': NO_SIGNALS }
  for (const [what, [start, expected]] of Object.entries(rows)) {
    const underWine = what === 'a cancel that the command answers' && isWine && WINE_CANNOT_ASK
    test(what, {
      ...posixOnly(notOnWindows[what], options),
      ...(underWine && { skip: underWine }),
    }, async () => {
      const child = start()
      const { durationMs, error, forced, ...exit } = await child.wait()
      assert.deepEqual(exit, { runId: child.runId, ...usual, ...expected })
      // On Windows most commands cannot be asked to exit.
      if (!isWindows) assert.deepEqual(forced, [])
      assert.equal(error?.code, expected.reason === 'spawn-error' ? 'ENOENT' : undefined)
      assert.ok(Number.isInteger(durationMs) && durationMs >= 0, `after ${durationMs} ms`)
    })
  }

  test('an escape, with the escaped process', posixOnly(NO_SESSIONS, options), async (t) => {
    const { child, witness } = await standing(t, 'double-fork-daemon', 2)
    child.stdin.end()
    const { leftovers, escaped, forced, durationMs, ...exit } = await child.wait()
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual(exit, {
      ...{ runId: child.runId, reason: 'ownership-escape', ok: true, exitCode: 0, signal: null },
      ...{ timedOut: false, noOutputTimedOut: false, survivors: [] },
      message: 'exited with code 0; 1 process that had left its session outlived it',
    })
    assert.deepEqual(leftovers, escaped)
    assert.deepEqual(forced, [], 'it died of SIGTERM')
    const [{ pid, startToken, command, why }] = escaped
    assert.ok(Number.isInteger(pid) && pid > 0 && pid !== child.pid)
    assert.ok(startToken.startsWith(`${pid}:`))
    assert.equal(isSameProcess(startToken), false, 'the escaped process is gone')
    assert.equal(command, 'double-fork-dae', 'the process name of the kernel')
    assert.match(why, /left the run's session/)
  })

  test('a process that the root leaves in its own session: listed, and no escape', options, async (t) => {
    const { child, witness } = await standing(t, 'ignores-sigterm', 2, { graceMs: 100 })
    child.stdin.end()
    const { reason, leftovers, escaped, survivors, unlisted } = await child.wait()
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([reason, escaped, survivors, unlisted], ['exit', [], [], undefined])
    const [{ pid, startToken, why }, ...more] = leftovers
    assert.ok(Number.isInteger(pid) && pid > 0 && pid !== child.pid)
    assert.deepEqual([isSameProcess(startToken), why, more], [false, "outlived the run's root", []])
  })

  test('the duration, from the start to the end of the tree', options, async () => {
    const from = performance.now()
    const { durationMs } = await spawnOwned('sleep', ['0.15']).wait()
    assert.ok(durationMs >= 149 && durationMs <= performance.now() - from + 1, `${durationMs} ms`)
  })
})

describe('wait()', () => {
  test('returns the same result every time', options, async () => {
    const child = spawnOwned('true')
    const [first, second] = await Promise.all([child.wait(), child.wait()])
    assert.equal(first, second)
    assert.equal(await child.wait(), first)
  })

  test('resolves after the exit or error event', options, async () => {
    for (const command of ['true', 'nonexistent-command']) {
      const child = spawnOwned(command)
      let emitted = 0
      for (const event of ['exit', 'error']) child.on(event, () => emitted++)
      await child.wait()
      assert.equal(emitted, 1, command)
    }
  })

  test('resolves although the bot does not read the output', options, async () => {
    assert.equal((await spawnOwned('sh', ['-c', 'yes | head -c 5000']).wait()).exitCode, 0)
  })

  test('keeps the bot alive', notInDeno(OTHER_ARGUMENTS, options), () => {
    const code = `import { spawnOwned } from 'spawn-owned'
      console.log((await spawnOwned('true').wait()).reason)`
    const args = ['--input-type=module', '-e', code]
    assert.equal(execFileSync(process.execPath, args, { cwd: script('.'), encoding: 'utf8' }), 'exit\n')
  })
})

describe('timeoutMs', () => {
  test(
    'ends the whole tree, after the grace period by SIGKILL',
    notUnderWine(WINE_CANNOT_ASK, options),
    async (t) => {
      const witness = openWitness(t)
      const child = spawnOwned(program('ignores-sigterm'), [witness.path], { timeoutMs: 300, graceMs: 100 })
      await witness.ready(2)
      const exit = await child.wait()
      assert.ok(witness.isGone(), witness.holders())
      assert.deepEqual([exit.reason, exit.signal, exit.timedOut], ['overall-timeout', 'SIGKILL', true])
      assert.ok(exit.durationMs >= 399, `after ${exit.durationMs} ms`)
      assert.ok(child.killed, "as with Node's timeout")
    },
  )

  test('stays the reason when a cancel comes later', options, async (t) => {
    const witness = openWitness(t)
    const child = spawnOwned(program('ignores-sigterm'), [witness.path], {
      timeoutMs: 300,
      graceMs: FOR_EVER,
    })
    await witness.ready(2)
    while (child.state === 'running') await new Promise(setImmediate)
    assert.equal((await child.cancel({ signal: 'SIGKILL' })).reason, 'overall-timeout')
  })
})

describe("with onLeaderExit: 'keep',", () => {
  const kept = { onLeaderExit: 'keep', graceMs: GRACE_FOR_ALL_MS }

  test('descendants live on, and a cancel ends them', options, async (t) => {
    const { child, witness } = await standing(t, 'half-setsid', 33, kept)
    let over = false
    child.wait().then(() => (over = true))
    child.stdin.end()
    const [code] = await once(child, 'exit')
    assert.deepEqual([code, child.exitCode], [0, 0])
    // The run is not ending, and a round trip to the keeper does not change that.
    assert.equal(child.state, 'running')
    await spawnOwned('true').wait()
    assert.deepEqual([over, witness.isGone()], [false, false])
    const exit = await child.cancel()
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([exit.reason, exit.exitCode, exit.escaped], ['manual-cancel', 0, []])
  })

  test('a cancel returns the exit code of the root', options, async (t) => {
    const { child, witness } = await standing(t, 'half-setsid', 33, kept)
    child.stdin.end()
    await once(child, 'exit')
    const { outcome, exits } = await cancel({ runId: child.runId }, { reason: 'shutdown' })
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([outcome, exits[0].reason, exits[0].exitCode], ['cancelled', 'shutdown', 0])
  })

  test('a tree that ends by itself has the reason exit', options, async () => {
    const child = spawnOwned('sh', ['-c', '(read _) <&3 & exit 6'], {
      ...kept,
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    })
    child.on('exit', () => child.stdio[3].end('\n'))
    const { reason, exitCode, escaped } = await child.wait()
    assert.deepEqual([reason, exitCode, escaped], ['exit', 6, []])
  })

  test(
    'a descendant with the stdin of the root gets input until it ends',
    posixOnly(NO_SHELL, options),
    async () => {
      const child = spawnOwned('sh', ['-c', 'exec 3<&0; cat <&3 & exit 0'], kept)
      await once(child, 'exit')
      child.stdin.write('are you there?')
      assert.equal(String((await once(child.stdout, 'data'))[0]), 'are you there?')
      child.stdin.end()
      assert.equal((await child.wait()).reason, 'exit')
      assert.equal(child.stdin.destroyed, true)
    },
  )

  test('the deadline still counts', options, async (t) => {
    // Enough time for the tree to be ready, also on a slow machine.
    const timeoutMs = isWindows ? 5000 : 400
    const { child, witness } = await standing(t, 'half-setsid', 33, { ...kept, timeoutMs })
    child.stdin.end()
    const { reason, exitCode } = await child.wait()
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([reason, exitCode], ['overall-timeout', 0])
  })
})

describe('the run id', () => {
  test('is generated or as given', () => {
    const [one, two] = [spawnOwned('true'), spawnOwned('true')]
    assert.match(one.runId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
    assert.notEqual(one.runId, two.runId)
    for (const runId of ['a', 'A.b_c-9', 'x'.repeat(128)])
      assert.equal(spawnOwned('true', { runId }).runId, runId)
  })
})

describe('a worker thread', () => {
  const start = (command, ...args) =>
    new Worker(script('worker-with-a-run.mjs'), { workerData: { command, args } })

  test('owns runs like the main thread', linuxOnly(NO_PROC, options), async () => {
    const worker = start('sh', '-c', 'echo from a worker; grep SigBlk /proc/self/status; exit 3')
    const messages = []
    worker.on('message', (message) => messages.push(message))
    await once(worker, 'exit')
    const output = 'from a worker\nSigBlk:\t0000000000000000\n'
    assert.deepEqual(messages, ['started', { output, reason: 'exit', exitCode: 3 }])
  })

  test('gives its commands its own environment', options, async () => {
    process.env.WHERE = 'main thread'
    const worker = start('sh', '-c', 'echo $WHERE')
    const [, [{ output }]] = [await once(worker, 'message'), await once(worker, 'message')]
    delete process.env.WHERE
    assert.equal(output, 'worker\n')
  })

  test('ends its runs when it is terminated', notInDeno(NO_WORKERS_END, options), async (t) => {
    const witness = openWitness(t)
    const worker = start(program('half-setsid'), witness.path)
    await witness.ready(33)
    await worker.terminate()
    await witness.gone(20_000)
    assert.equal((await spawnOwned('true').wait()).reason, 'exit', 'other runs still work')
  })
})

test('close comes after all output and the exit', options, async () => {
  const child = spawnOwned('sh', ['-c', 'echo out; echo err >&2; exit 2'])
  const { log, stdout, stderr } = await record(child)
  assert.deepEqual([log.at(-1), stdout, stderr], [['close', 2, null], 'out\n', 'err\n'])
})
