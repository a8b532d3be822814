// spawn-owned/node-pty: node-pty's shape, as node-pty's own callers use it.
import assert from 'node:assert/strict'
import { constants } from 'node:os'
import { PassThrough } from 'node:stream'
import { describe, test } from 'node:test'
import { list } from 'spawn-owned'
import * as pty from 'spawn-owned/node-pty'
import { program } from './support/fixtures.mjs'
import {
  isWindows,
  NO_SIGNALS,
  NO_TTY,
  notUnderWine,
  posixOnly,
  WINE_CONNECTS_NO_STREAMS,
} from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 30_000 }
const { SIGHUP, SIGTERM } = constants.signals

function open(t, file, args, more) {
  const terminal = pty.spawn(file, args, more)
  t.after(() => terminal.run.cancel({ signal: 'SIGKILL' }))
  return terminal
}
const sh = (t, line, more) => open(t, 'sh', ['-c', line], more)
const exited = (terminal) => new Promise((resolve) => terminal.onExit(resolve))

/** Everything it says, and how it exits. */
async function outcome(terminal) {
  const data = []
  terminal.onData((chunk) => data.push(chunk))
  return { ...(await exited(terminal)), data }
}

/** Resolves when `text` has been said. */
function said(terminal, text) {
  let all = ''
  return new Promise((resolve) => {
    const listening = terminal.onData((data) => {
      all += data
      if (!all.includes(text)) return
      listening.dispose()
      resolve(all)
    })
  })
}

describe('spawn', options, () => {
  test('gives pid, size, the run underneath, and its owner knows of it', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'stty size; read -r _', { cols: 100, rows: 30, sessionId: 'node-pty-shape' })
    assert.deepEqual([terminal.cols, terminal.rows, terminal.handleFlowControl], [100, 30, false])
    assert.equal(terminal.pid, terminal.run.pid)
    assert.equal(list({ sessionId: 'node-pty-shape' })[0].pid, terminal.pid)
    await said(terminal, '30 100')
  })

  test('needs no arguments at all, as there', notUnderWine(WINE_CONNECTS_NO_STREAMS), async (t) => {
    const terminal = open(t)
    terminal.write('exit 5\r')
    assert.equal((await exited(terminal)).exitCode, 5)
  })

  test('data first, then exit, with code and signal as there', posixOnly(NO_TTY), async (t) => {
    const normal = await outcome(sh(t, 'echo out; exit 3'))
    assert.deepEqual([normal.data.join(''), normal.exitCode, normal.signal], ['out\r\n', 3, 0])
    const killed = await outcome(sh(t, 'kill -TERM $$'))
    assert.deepEqual([killed.exitCode, killed.signal], [0, SIGTERM])
  })

  test('a command that cannot be started says so and exits with 1', async (t) => {
    for (const [file, cwd] of [['no-such-command'], ['true', '/no/such/directory']]) {
      const terminal = open(t, file, [], { cwd })
      assert.ok(Number.isNaN(terminal.pid))
      const { exitCode, data } = await outcome(terminal)
      assert.equal(exitCode, 1)
      assert.match(data.join(''), /ENOENT/)
    }
  })

  test('encoding: text, other text, bytes', posixOnly(NO_TTY), async (t) => {
    const line = "printf '\\303\\246'"
    const text = async (encoding) => (await outcome(sh(t, line, { encoding }))).data
    assert.equal((await text(undefined)).join(''), 'æ')
    assert.equal((await text('hex')).join(''), 'c3a6')
    const bytes = await text(null)
    assert.ok(bytes.every((chunk) => chunk instanceof Buffer))
    assert.deepEqual([...Buffer.concat(bytes)], [0xc3, 0xa6])
  })

  test('environment: TERM, PWD, and nothing of the bot’s own terminal', posixOnly(NO_TTY), async (t) => {
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
  })

  test('wrong types are errors in its words', () => {
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

describe('while it runs', options, () => {
  test('resize', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'trap "stty size" WINCH; echo on; while :; do read -r _; done')
    await said(terminal, 'on')
    const seen = said(terminal, '33 99')
    terminal.resize(99, 33)
    assert.deepEqual([terminal.cols, terminal.rows], [99, 33])
    // A shell runs its trap when what it waits for is over.
    terminal.write('\r')
    await seen
    for (const size of [0, -1, Number.NaN, Number.POSITIVE_INFINITY])
      assert.throws(() => terminal.resize(size, 24), /positive cols and rows/)
    terminal.clear()
    terminal.kill('SIGKILL')
    await exited(terminal)
    terminal.resize(80, 24)
    terminal.write('to nobody')
  })

  test('process is who is in the foreground', posixOnly(NO_TTY), async (t) => {
    const terminal = open(t, 'bash', ['--norc', '-i'], {})
    assert.equal(terminal.process, 'bash')
    const seen = said(terminal, 'in front')
    terminal.write('sh -c "echo in\\ front; read -r _"\r')
    await seen
    assert.equal(terminal.process, 'sh')
  })

  test(
    'kill signals the command, SIGHUP if nothing else is said, and what it has started goes too',
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

  test('destroy hangs up', posixOnly(NO_SIGNALS), async (t) => {
    const terminal = open(t, 'cat', [], {})
    terminal.destroy()
    assert.equal((await exited(terminal)).signal, SIGHUP)
  })

  test('end, pipe and setEncoding, which its types do not have', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'stty -echo; echo on; read -r line; read -r rest; echo "$line$rest."')
    await said(terminal, 'on\r\n')
    const exit = exited(terminal)
    const piped = terminal.pipe(new PassThrough())
    terminal.setEncoding('hex')
    // The end of what is typed is a key: nothing can be closed here without hanging up.
    terminal.end('hello\r\x04')
    const chunks = await piped.toArray()
    assert.equal((await exit).exitCode, 0)
    assert.equal(Buffer.from(chunks.join(''), 'hex').toString(), 'hello.\r\n')
  })

  test('listeners can be disposed of', notUnderWine(WINE_CONNECTS_NO_STREAMS), async (t) => {
    const terminal = sh(t, 'echo one; read -r _; echo two')
    let heard = ''
    const listening = terminal.onData((data) => {
      heard += data
    })
    await said(terminal, 'one')
    listening.dispose()
    const more = []
    terminal.on('data', (data) => more.push(data))
    terminal.write(Buffer.from('\r'))
    await exited(terminal)
    assert.match(heard, isWindows ? /one/ : /^one\r\n$/)
    assert.match(more.join(''), /two/)
  })

  test('pause and resume, also by what is written', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'echo on; read -r _; head -c 3000000 /dev/zero', {
      handleFlowControl: true,
      flowControlPause: 'STOP',
      flowControlResume: 'GO',
    })
    await said(terminal, 'on')
    let heard = 0
    terminal.onData((data) => {
      heard += data.length
    })
    terminal.write('STOP')
    const paused = heard
    terminal.write('\r')
    // If it were not held up, it would be through with this by far.
    await new Promise((resolve) => setTimeout(resolve, 300))
    assert.equal(heard, paused)
    assert.equal(terminal.run.exitCode, null)
    terminal.write('GO')
    await exited(terminal)
    assert.ok(heard >= 3_000_000)
  })
})
