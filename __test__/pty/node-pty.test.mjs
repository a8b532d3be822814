// spawn-owned/node-pty has the API of node-pty. The tests use it as callers of node-pty do.
import { constants } from 'node:os'
import { PassThrough } from 'node:stream'
import { list } from 'spawn-owned'
import * as pty from 'spawn-owned/node-pty'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import {
  isWindows,
  NO_SIGNALS,
  NO_TTY,
  notUnderWine,
  posixOnly,
  WINE_CONNECTS_NO_STREAMS,
} from '../support/system.mjs'

const options = { timeout: 30_000 }
const { SIGHUP, SIGTERM } = constants.signals

function open(t, file, args, more) {
  const terminal = pty.spawn(file, args, more)
  t.after(() => terminal.run.cancel({ signal: 'SIGKILL' }))
  return terminal
}
const sh = (t, line, more) => open(t, 'sh', ['-c', line], more)
const exited = (terminal) => new Promise((resolve) => terminal.onExit(resolve))

/** The whole output of the command and how it exits. */
async function outcome(terminal) {
  const data = []
  terminal.onData((chunk) => data.push(chunk))
  return { ...(await exited(terminal)), data }
}

/** Resolves when the output contains `text`. */
function outputHas(terminal, text) {
  let all = ''
  return new Promise((resolve) => {
    const listener = terminal.onData((data) => {
      all += data
      if (!all.includes(text)) return
      listener.dispose()
      resolve(all)
    })
  })
}

describe('spawn', options, () => {
  test(
    'returns a terminal with PID, size and run, and the registry lists it',
    posixOnly(NO_TTY),
    async (t) => {
      const terminal = sh(t, 'stty size; read -r _', { cols: 100, rows: 30, sessionId: 'node-pty-shape' })
      assert.deepEqual([terminal.cols, terminal.rows, terminal.handleFlowControl], [100, 30, false])
      assert.equal(terminal.pid, terminal.run.pid)
      assert.equal(list({ sessionId: 'node-pty-shape' })[0].pid, terminal.pid)
      await outputHas(terminal, '30 100')
    },
  )

  test('works without arguments, as in node-pty', notUnderWine(WINE_CONNECTS_NO_STREAMS), async (t) => {
    const terminal = open(t)
    terminal.write('exit 5\r')
    assert.equal((await exited(terminal)).exitCode, 5)
  })

  test('emits all data before exit, with code and signal as in node-pty', posixOnly(NO_TTY), async (t) => {
    const normal = await outcome(sh(t, 'echo out; exit 3'))
    assert.deepEqual([normal.data.join(''), normal.exitCode, normal.signal], ['out\r\n', 3, 0])
    const killed = await outcome(sh(t, 'kill -TERM $$'))
    assert.deepEqual([killed.exitCode, killed.signal], [0, SIGTERM])
  })

  test('reports a command that cannot be started in its output and exits with 1', async (t) => {
    for (const [file, cwd] of [['no-such-command'], ['true', '/no/such/directory']]) {
      const terminal = open(t, file, [], { cwd })
      assert.ok(Number.isNaN(terminal.pid))
      const { exitCode, data } = await outcome(terminal)
      assert.equal(exitCode, 1)
      assert.match(data.join(''), /ENOENT/)
    }
  })

  test('gives data in the encoding: UTF-8, another one, or bytes', posixOnly(NO_TTY), async (t) => {
    const line = "printf '\\303\\246'"
    const text = async (encoding) => (await outcome(sh(t, line, { encoding }))).data
    assert.equal((await text(undefined)).join(''), 'æ')
    assert.equal((await text('hex')).join(''), 'c3a6')
    const bytes = await text(null)
    assert.ok(bytes.every((chunk) => chunk instanceof Buffer))
    assert.deepEqual([...Buffer.concat(bytes)], [0xc3, 0xa6])
  })

  test(
    'sets TERM and PWD, and passes on no variables of the bot’s own terminal',
    posixOnly(NO_TTY),
    async (t) => {
      process.env.COLUMNS = '7'
      t.after(() => delete process.env.COLUMNS)
      const line = 'echo "$TERM,$PWD,$COLUMNS"'
      const env = { PATH: process.env.PATH, COLUMNS: '9' }
      for (const [more, expected] of [
        [{ env, cwd: '/' }, 'xterm,/,9\r\n'],
        [{ env: { ...env, TERM: 'vt100' }, cwd: '/' }, 'vt100,/,9\r\n'],
        [{ env: { ...env, TERM: 'vt100' }, name: 'vt220', cwd: '/' }, 'vt220,/,9\r\n'],
        [{ name: 'vt220', cwd: '/' }, 'vt220,/,\r\n'],
      ]) {
        assert.equal((await outcome(sh(t, line, more))).data.join(''), expected)
      }
    },
  )

  test('throws on wrong types with the messages of node-pty', () => {
    if (!isWindows)
      assert.throws(() => pty.spawn('true', 'a b', {}), /args as a string is not supported on unix/)
    for (const [name, value, type] of [
      ['name', {}, 'string'],
      ['cols', '80', 'number'],
      ['cwd', 7, 'string'],
      ['env', 'A=1', 'object'],
      ['encoding', 8, 'string'],
    ]) {
      assert.throws(() => pty.spawn('true', [], { [name]: value }), new RegExp(`${name} must be a ${type}`))
    }
    assert.throws(() => pty.spawn('true', [], { cols: -1 }), { code: 'ERR_OUT_OF_RANGE' })
  })
})

describe('a terminal that runs', options, () => {
  test('resizes, and throws on wrong sizes', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'trap "stty size" WINCH; echo on; while :; do read -r _; done')
    await outputHas(terminal, 'on')
    const seen = outputHas(terminal, '33 99')
    terminal.resize(99, 33)
    assert.deepEqual([terminal.cols, terminal.rows], [99, 33])
    // A shell runs its trap after the command that it waits for.
    terminal.write('\r')
    await seen
    for (const size of [0, -1, Number.NaN, Number.POSITIVE_INFINITY])
      assert.throws(() => terminal.resize(size, 24), /positive cols and rows/)
    terminal.clear()
    terminal.kill('SIGKILL')
    await exited(terminal)
    terminal.resize(80, 24)
    terminal.write('after the exit')
  })

  test('has the foreground process as `process`', posixOnly(NO_TTY), async (t) => {
    const terminal = open(t, 'bash', ['--norc', '-i'], {})
    assert.equal(terminal.process, 'bash')
    const seen = outputHas(terminal, 'in front')
    terminal.write('sh -c "echo in\\ front; read -r _"\r')
    await seen
    assert.equal(terminal.process, 'sh')
  })

  test(
    'is killed by SIGHUP by default, and its descendants end with it',
    posixOnly(NO_SIGNALS),
    async (t) => {
      const witness = openWitness(t)
      const terminal = sh(t, `'${program('stays')}' '${witness.path}' < /dev/null & wait`)
      await witness.ready(1)
      terminal.kill('SIGNOSUCH')
      terminal.kill()
      const { exitCode, signal } = await exited(terminal)
      assert.ok(witness.isGone(), witness.holders())
      assert.deepEqual([exitCode, signal], [0, SIGHUP])
    },
  )

  test('hangs up on destroy', posixOnly(NO_SIGNALS), async (t) => {
    const terminal = open(t, 'cat', [], {})
    terminal.destroy()
    assert.equal((await exited(terminal)).signal, SIGHUP)
  })

  test('has end, pipe and setEncoding, which the types of node-pty lack', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'stty -echo; echo on; read -r line; read -r rest; echo "$line$rest."')
    await outputHas(terminal, 'on\r\n')
    const exit = exited(terminal)
    const piped = terminal.pipe(new PassThrough())
    terminal.setEncoding('hex')
    // A key ends the input: a terminal cannot close its input without a hang-up.
    terminal.end('hello\r\x04')
    const chunks = await piped.toArray()
    assert.equal((await exit).exitCode, 0)
    assert.equal(Buffer.from(chunks.join(''), 'hex').toString(), 'hello.\r\n')
  })

  test('sends no data to a disposed listener', notUnderWine(WINE_CONNECTS_NO_STREAMS), async (t) => {
    const terminal = sh(t, 'echo one; read -r _; echo two')
    let received = ''
    const listener = terminal.onData((data) => {
      received += data
    })
    await outputHas(terminal, 'one')
    listener.dispose()
    const more = []
    terminal.on('data', (data) => more.push(data))
    terminal.write(Buffer.from('\r'))
    await exited(terminal)
    assert.match(received, isWindows ? /one/ : /^one\r\n$/)
    assert.match(more.join(''), /two/)
  })

  test('pauses and resumes, also by flow control characters', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'echo on; read -r _; head -c 3000000 /dev/zero', {
      handleFlowControl: true,
      flowControlPause: 'STOP',
      flowControlResume: 'GO',
    })
    await outputHas(terminal, 'on')
    let received = 0
    terminal.onData((data) => {
      received += data.length
    })
    terminal.write('STOP')
    const paused = received
    terminal.write('\r')
    // Without the pause the command would have finished long before this.
    await new Promise((resolve) => setTimeout(resolve, 300))
    assert.equal(received, paused)
    assert.equal(terminal.run.exitCode, null)
    terminal.write('GO')
    await exited(terminal)
    assert.ok(received >= 3_000_000)
  })
})
