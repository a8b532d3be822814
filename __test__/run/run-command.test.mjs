// run(): starts a command, captures a bounded part of its output, and never rejects.
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { run } from 'spawn-owned'
import { assertGone, freshRegistry, supervise } from '../support/bots.mjs'
import { after, assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { NO_SHELL, posixOnly, removeFolder } from '../support/system.mjs'

const options = { timeout: 60_000 }
const supervisor = supervise(freshRegistry())
const folder = mkdtempSync(join(tmpdir(), 'run-command-'))
after(() => removeFolder(folder))

/** Runs a script in Node. */
const script = (code, more) => supervisor.run(process.execPath, ['-e', code], more)
const echo = 'process.stdin.pipe(process.stdout)'

describe('run()', options, () => {
  test('resolves with output and exit', async () => {
    const result = await script("console.log('out'); console.error('err'); process.exitCode = 3")
    const { ok, reason, exitCode, stdout, stderr, truncated } = result
    assert.deepEqual(
      { ok, reason, exitCode, stdout, stderr, truncated },
      { ok: false, reason: 'exit', exitCode: 3, stdout: 'out\n', stderr: 'err\n', truncated: false },
    )
  })

  test('is ok for exit code 0, with or without args', async () => {
    const env = { ...process.env, NODE_OPTIONS: '' }
    assert.equal((await script('0')).ok, true)
    assert.equal((await supervisor.run(process.execPath, { env })).ok, true)
    assert.equal((await supervisor.run(process.execPath)).ok, true)
  })

  test('is a function of the module too', async () => {
    const result = await run('/nonexistent/command', ['a'])
    assert.deepEqual([result.ok, result.reason, result.error.code], [false, 'spawn-error', 'ENOENT'])
  })

  test('captures the output of descendants that outlive the root', posixOnly(NO_SHELL), async () => {
    const ready = join(folder, 'ready')
    const code = `
      (trap "echo late; exit" TERM; echo early; : > ${ready}; while :; do sleep 0.01; done) &
      until [ -e ${ready} ]; do sleep 0.01; done`
    const { stdout, ok, leftovers } = await supervisor.run('sh', ['-c', code], { graceMs: 20_000 })
    assert.equal(stdout, 'early\nlate\n')
    assert.equal(ok, true)
    assert.ok(leftovers.length > 0)
  })

  test('resolves when the tree is gone', async (t) => {
    const witness = openWitness(t)
    const abort = new AbortController()
    const ended = supervisor.run(program('stays'), [witness.path], { signal: abort.signal, graceMs: 0 })
    await witness.ready(1)
    abort.abort()
    const { ok, reason } = await ended
    assertGone(witness)
    assert.deepEqual([ok, reason], [false, 'manual-cancel'])
  })
})

describe('the input of run()', options, () => {
  const text = 'zażółć gęślą jaźń 🦀\n'.repeat(10_000)
  const inputs = {
    'a string': () => text,
    'an Uint8Array': () => new Uint8Array(Buffer.from(text)),
    'a Readable': () => Readable.from([text.slice(0, 7), Buffer.from(text.slice(7))]),
  }
  for (const [name, input] of Object.entries(inputs))
    test(`can be ${name}`, async () => {
      const { ok, stdout } = await script(echo, { input: input() })
      assert.equal(ok, true)
      assert.equal(stdout, text)
    })

  test('is empty by default, so the command does not wait for it', async () => {
    assert.equal((await script(echo)).ok, true)
    assert.equal((await script(echo, { stdio: 'pipe' })).ok, true)
  })

  test('may be longer than what the command reads', async () => {
    const input = new Readable({ read: () => setImmediate(() => input.push(Buffer.alloc(65536))) })
    const { ok, error } = await script('process.stdin.once("data", () => process.exit())', { input })
    assert.deepEqual([ok, error], [true, undefined])
    assert.equal(input.destroyed, true, 'the stream is not read on')
    assert.equal((await script('process.exit()', { input: 'x'.repeat(5_000_000) })).ok, true)
  })

  test('that was destroyed before the call ends the command', async () => {
    const input = new Readable({ read() {} })
    input.destroy()
    await once(input, 'close')
    const { ok, error } = await script(echo, { input, graceMs: 0 })
    assert.deepEqual([ok, error.code], [false, 'ERR_OWNED_INPUT'])
  })

  test('cancels the run if the stream fails', async () => {
    const input = new Readable({ read() {} })
    input.push('a part')
    const ended = script(echo, { input, graceMs: 0 })
    setImmediate(() => input.destroy(new Error('disk on fire')))
    const { ok, error, message } = await ended
    assert.deepEqual([ok, error.code], [false, 'ERR_OWNED_INPUT'])
    assert.match(message, /disk on fire/)
  })
})

describe('run() keeps the beginning and the end of', options, () => {
  test('a long output', async () => {
    const code = 'for (let i = 0; i < 200000; i++) console.log("line", i)'
    const { stdout, truncated, ok } = await script(code, { maxOutputBytes: 1000 })
    assert.deepEqual([truncated, ok], [true, true])
    assert.ok(Buffer.byteLength(stdout) <= 1000)
    assert.match(stdout, /^line 0\nline 1\n/)
    assert.match(stdout, /\n\[\.\.\. \d+ bytes omitted \.\.\.\]\n/)
    assert.match(stdout, /\nline 199999\n$/)
  })

  test('an output of many lines, on stderr too', async () => {
    const code = 'for (let i = 0; i < 1000; i++) console.error("line", i)'
    const { stderr, stdout, truncated } = await script(code, { maxOutputLines: 5 })
    assert.equal(truncated, true)
    assert.equal(stdout, '')
    assert.match(stderr, /^line 0\nline 1\n\[\.\.\. \d+ bytes omitted \.\.\.\]\nline 998\nline 999\n$/)
  })

  test('an output of 512 MiB, in bounded memory', async () => {
    const code =
      'const b = Buffer.alloc(1048576, "x"); let n = 512; const w = () => { if (n--) process.stdout.write(b, w) }; w()'
    const before = process.memoryUsage.rss()
    let most = before
    const samples = setInterval(() => {
      most = Math.max(most, process.memoryUsage.rss())
    }, 10)
    const { stdout, truncated, ok } = await script(code)
    clearInterval(samples)
    assert.deepEqual([truncated, ok], [true, true])
    assert.ok(stdout.length <= 1024 * 1024)
    // The garbage collector may leave some of the chunks that were read, but not half of them.
    assert.ok(most - before < 256 * 1024 * 1024, `it grew by ${most - before} bytes`)
  })

  test('no output at all with a limit of 0', async () => {
    const { stdout, truncated } = await script('console.log(1)', { maxOutputBytes: 0 })
    assert.deepEqual([stdout, truncated], ['', true])
  })
})

describe('run() resolves, and needs no listener of error, if', options, () => {
  const failures = {
    'there is no such command': [() => supervisor.run('/nonexistent/command'), 'ENOENT'],
    'the directory does not exist': [() => script('0', { cwd: join(folder, 'missing') }), 'ENOENT'],
    'the run id is in use': [
      async () => {
        const earlier = supervisor.spawnOwned(process.execPath, ['-e', 'setInterval(() => {}, 1e6)'], {
          runId: 'twice',
        })
        const result = await script('0', { runId: 'twice' })
        await earlier.cancel({ graceMs: 0 })
        return result
      },
      'ERR_OWNED_DUPLICATE_RUN',
    ],
    'the supervisor is closed': [
      async () => {
        const closed = supervise(freshRegistry())
        await closed.close()
        return closed.run(process.execPath)
      },
      'ERR_OWNED_CLOSED',
    ],
  }
  for (const [name, [fail, code]] of Object.entries(failures))
    test(name, async () => {
      const { ok, reason, error, stdout, truncated } = await fail()
      assert.deepEqual([ok, reason, error.code], [false, 'spawn-error', code])
      assert.deepEqual([stdout, truncated], ['', false])
    })

  test('the signal aborts it', async () => {
    const { ok, reason } = await script('setInterval(() => {}, 1e6)', {
      signal: AbortSignal.timeout(50),
      graceMs: 0,
    })
    assert.deepEqual([ok, reason], [false, 'manual-cancel'])
  })
})

test('run() throws for invalid arguments, and starts nothing', options, () => {
  const wrong = [
    [() => supervisor.run(1), 'ERR_INVALID_ARG_TYPE'],
    [() => supervisor.run('true', 1), 'ERR_INVALID_ARG_TYPE'],
    [() => supervisor.run('true', [], 1), 'ERR_INVALID_ARG_TYPE'],
    [() => script('0', { input: 1 }), 'ERR_INVALID_ARG_TYPE'],
    [() => script('0', { input: 'x', stdio: 'inherit' }), 'ERR_INVALID_ARG_VALUE'],
    [() => script('0', { maxOutputBytes: '1' }), 'ERR_INVALID_ARG_TYPE'],
    [() => script('0', { maxOutputBytes: -1 }), 'ERR_OUT_OF_RANGE'],
    [() => script('0', { maxOutputLines: Number.NaN }), 'ERR_OUT_OF_RANGE'],
    [() => script('0', { maxOutputByte: 1 }), 'ERR_INVALID_ARG_VALUE'],
    [() => script('0', { timeoutMs: 'soon' }), 'ERR_INVALID_ARG_TYPE'],
  ]
  for (const [call, code] of wrong) assert.throws(call, { code })
  assert.deepEqual(supervisor.list(), [])
})
