// OwnedProcess.lines and OwnedProcess.exited, and errors of a run that a caller awaits.
import { once } from 'node:events'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freshRegistry, inAScript, supervise, until } from '../support/bots.mjs'
import { after, assert, describe, test } from '../support/prelude.mjs'
import { NO_SHELL, posixOnly, removeFolder } from '../support/system.mjs'

const options = { timeout: 60_000 }
const { spawnOwned } = supervise(freshRegistry())
const folder = mkdtempSync(join(tmpdir(), 'lines-'))
after(() => removeFolder(folder))

const script = (code, more) => spawnOwned(process.execPath, ['-e', code], more)

async function collect(lines) {
  const all = []
  for await (const line of lines) all.push(line)
  return all
}

describe('lines()', options, () => {
  const outputs = {
    'with LF and CRLF': ['a\nb\r\n\nc\n', ['a', 'b', '', 'c']],
    'whose last line has no line end': ['a\nb', ['a', 'b']],
    'with a carriage return inside a line': ['10%\r20%\r\n', ['10%\r20%']],
    'whose last character is a carriage return': ['a\r', ['a\r']],
    empty: ['', []],
  }
  for (const [name, [text, expected]] of Object.entries(outputs))
    test(`splits an output ${name}`, async () => {
      const child = script(`process.stdout.write(${JSON.stringify(text)})`)
      assert.deepEqual(await collect(child.lines()), expected)
      assert.equal((await child.wait()).ok, true)
    })

  test('joins characters and lines that arrive in parts', async () => {
    // One byte at a time, so that the pipe delivers parts of characters.
    const code = `
      const bytes = Buffer.from('zażółć 🦀\\r\\ndrugi 🐧\\nlast'); let at = 0
      const step = () => at < bytes.length && process.stdout.write(bytes.subarray(at, ++at), () => setImmediate(step))
      step()`
    assert.deepEqual(await collect(script(code).lines()), ['zażółć 🦀', 'drugi 🐧', 'last'])
  })

  test('reads stderr, or both', async () => {
    const code = "console.log('out'); console.error('err')"
    assert.deepEqual(await collect(script(code).lines({ stream: 'stderr' })), ['err'])
    assert.deepEqual((await collect(script(code).lines({ stream: 'both' }))).sort(), ['err', 'out'])
  })

  test('loses nothing if the command exits first', async () => {
    const child = script("console.log('a'); console.log('b')")
    const lines = child.lines()
    await child.wait()
    assert.deepEqual(await collect(lines), ['a', 'b'])
  })

  test('continues after break with the next line', async () => {
    const child = script("process.stdout.write('a\\nb\\nc'); process.stdin.resume()")
    for await (const line of child.lines()) {
      assert.equal(line, 'a')
      break
    }
    child.stdin.end()
    assert.deepEqual(await collect(child.lines()), ['b', 'c'])
  })

  test('blocks the command while the caller is busy', async () => {
    const code = `
      let written = 0
      const line = 'x'.repeat(65535) + '\\n'
      const write = () => { process.stdout.write(line, () => { process.send(++written); if (written < 200) write() }) }
      write()`
    const child = script(code, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
    let written = 0
    child.on('message', (count) => {
      written = count
    })
    const lines = child.lines()[Symbol.asyncIterator]()
    await lines.next()
    await until(() => written > 1, 'the command has written')
    // The pipe and the buffers of the stream hold far less than the 13 MB.
    for (let seen = -1; seen !== written; await new Promise((resolve) => setTimeout(resolve, 100)))
      seen = written
    assert.ok(written < 100, `the command has written ${written} lines`)
    let count = 1
    while (!(await lines.next()).done) count++
    assert.equal(count, 200)
  })

  test('refuses an output that is no pipe, and unknown options', async () => {
    const child = script('0', { stdio: 'ignore' })
    for (const stream of ['stdout', 'stderr', 'both'])
      assert.throws(() => child.lines({ stream }), { code: 'ERR_OWNED_NO_OUTPUT' })
    assert.throws(() => child.lines({ stream: 'stdin' }), { code: 'ERR_INVALID_ARG_VALUE' })
    assert.throws(() => child.lines({ streams: 'both' }), { code: 'ERR_INVALID_ARG_VALUE' })
    await child.wait()
  })
})

describe('exited', options, () => {
  test('resolves while descendants are alive', posixOnly(NO_SHELL), async () => {
    const child = spawnOwned('sh', ['-c', 'sleep 600 & exit 3'], { onLeaderExit: 'keep' })
    assert.deepEqual(await child.exited, { exitCode: 3, signal: null })
    assert.equal((await child.usage()).processes, 1)
    const { ok, exitCode, reason } = await child.cancel({ graceMs: 0 })
    assert.deepEqual([ok, exitCode, reason], [false, 3, 'manual-cancel'])
  })

  test('is ok if the root process exited with 0 before the cancel', posixOnly(NO_SHELL), async () => {
    const child = spawnOwned('sh', ['-c', 'sleep 600 & exit 0'], { onLeaderExit: 'keep' })
    await child.exited
    assert.equal((await child.cancel({ graceMs: 0 })).ok, true)
  })

  test('is not ok if a cancel made the root process exit with 0', posixOnly(NO_SHELL), async () => {
    const child = spawnOwned('sh', ['-c', 'trap "exit 0" TERM; echo ready; while :; do sleep 0.01; done'])
    await once(child.stdout, 'data')
    const { ok, exitCode } = await child.cancel()
    assert.deepEqual([ok, exitCode], [false, 0])
  })

  test('has the signal, and can be read after the exit', posixOnly(NO_SHELL), async () => {
    const child = spawnOwned('sh', ['-c', 'kill -9 $$'])
    await child.wait()
    assert.deepEqual(await child.exited, { exitCode: null, signal: 'SIGKILL' })
  })

  test('has the error of a failed start', async () => {
    const child = spawnOwned('/nonexistent/command')
    const { exitCode, signal, error } = await child.exited
    assert.deepEqual([exitCode, signal, error.code], [null, null, 'ENOENT'])
  })
})

describe('a caller that awaits', options, () => {
  for (const name of ['wait', 'exited', 'lines'])
    test(`${name} needs no listener of error`, async () => {
      const child = spawnOwned('/nonexistent/command')
      if (name === 'lines') assert.deepEqual(await collect(child.lines()), [])
      else await (name === 'wait' ? child.wait() : child.exited)
      assert.equal((await child.wait()).error.code, 'ENOENT')
    })

  test('nothing needs one, as in Node', async () => {
    const [message] = await inAScript(freshRegistry(), 'uncaught')
    assert.match(message, /^Error: spawn \/nonexistent\/command ENOENT/)
  })

  test('wait still gets the event, if it listens', async () => {
    const child = spawnOwned('/nonexistent/command')
    const exit = child.wait()
    const [error] = await once(child, 'error')
    assert.equal(error.code, (await exit).error.code)
  })
})

describe('an error names the directory if', options, () => {
  const file = join(folder, 'file')
  writeFileSync(file, '')
  for (const [name, cwd, why] of [
    ['it does not exist', join(folder, 'missing'), 'does not exist'],
    ['it is a file', file, 'is not a directory'],
  ])
    test(name, async () => {
      let message
      try {
        const child = script('0', { cwd })
        message = (await child.wait()).message
      } catch (error) {
        message = error.message
      }
      assert.ok(message.includes(`options.cwd ${JSON.stringify(cwd)} ${why}`), message)
    })

  test('not if the command does not exist', async () => {
    const child = spawnOwned('/nonexistent/command', [], { cwd: folder })
    assert.equal((await child.wait()).message, 'spawn /nonexistent/command ENOENT')
  })
})
