// A run with a terminal: what the command gets, what the bot gets, and that no data is lost.
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import { spawnOwned } from 'spawn-owned'
import { assert, describe, openWitness, script, test } from '../support/prelude.mjs'
import {
  isLinux,
  isWindows,
  linuxOnly,
  NO_ORDER,
  NO_PROC,
  NO_TTY,
  NO_WAITING,
  notInDeno,
  notUnderWine,
  posixOnly,
  WINE_CONNECTS_NO_STREAMS,
} from '../support/system.mjs'
import { openTerminal } from '../support/terminal.mjs'

const options = { timeout: 60_000 }
const sh = (t, line, more) => openTerminal(t, 'sh', ['-c', line], more)

/** Runs a command line to its end and returns its whole output. */
async function output(t, line, more) {
  const terminal = sh(t, line, more)
  await terminal.closed
  return terminal.said
}

describe('the command', options, () => {
  test(
    'has the terminal as stdin, stdout, stderr and controlling terminal',
    linuxOnly(NO_PROC),
    async (t) => {
      const text = await output(
        t,
        'for fd in 0 1 2; do readlink /proc/self/fd/$fd; done; tty; echo open > /dev/tty',
      )
      const [stdin, ...others] = text.trim().split('\r\n')
      assert.match(stdin, /^\/dev\/pts\/\d+$/)
      assert.deepEqual(others, [stdin, stdin, stdin, 'open'])
    },
  )

  test('leads its session and is in the foreground', linuxOnly(NO_PROC), async (t) => {
    const terminal = sh(t, 'cut -d" " -f1,5,6,8 /proc/$$/stat')
    await terminal.closed
    const { pid } = terminal.child
    assert.equal(terminal.said, `${pid} ${pid} ${pid} ${pid}\r\n`)
  })

  test('holds no other file descriptor of its terminal or of another', linuxOnly(NO_PROC), async (t) => {
    const first = sh(t, 'echo on; read -r _')
    await first.sees(/on/)
    const text = await output(t, 'ls -1 /proc/$$/fd; echo; ls -l /proc/$$/fd | grep -c ptmx')
    assert.deepEqual(text.replaceAll('\r', '').split('\n\n')[0].split('\n').slice(0, 3), ['0', '1', '2'])
    assert.match(text, /\n0\r\n$/)
  })

  test('gets the size of its terminal, by default 80 by 24', posixOnly(NO_TTY), async (t) => {
    assert.equal(await output(t, 'stty size'), '24 80\r\n')
    assert.equal(await output(t, 'stty size', { pty: { cols: 132 } }), '24 132\r\n')
    assert.equal(await output(t, 'stty size', { pty: { cols: 1, rows: 65_535 } }), '65535 1\r\n')
  })

  test('gets a terminal that treats input as UTF-8', posixOnly(NO_TTY), async (t) => {
    const terminal = sh(t, 'echo on; read -r line; printf "<%s>" "$line"')
    await terminal.sees(/on/)
    // Erases one character of three bytes.
    terminal.type('a€\x7fb\n')
    await terminal.closed
    assert.match(terminal.said, /<ab>$/)
  })

  test(
    'gets TERM from pty.name, else env, else the default, and no variables of the bot’s own terminal',
    posixOnly(NO_TTY),
    async (t) => {
      const before = { ...process.env }
      t.after(() => Object.assign(process.env, { LINES: undefined, COLUMNS: undefined }, before))
      Object.assign(process.env, { TERM: 'dumb', LINES: '3', COLUMNS: '7' })
      t.after(() => {
        for (const name of ['TERM', 'LINES', 'COLUMNS']) if (!(name in before)) delete process.env[name]
      })
      const line = 'echo "$TERM,$LINES,$COLUMNS"'
      const env = { PATH: process.env.PATH, TERM: 'vt220', LINES: '9' }
      assert.equal(await output(t, line), 'xterm-256color,,\r\n')
      assert.equal(await output(t, line, { pty: { name: 'vt100' } }), 'vt100,,\r\n')
      assert.equal(await output(t, line, { env }), 'vt220,9,\r\n')
      assert.equal(await output(t, line, { env, pty: { name: 'vt100' } }), 'vt100,9,\r\n')
      assert.equal(await output(t, line, { env: { PATH: env.PATH } }), 'xterm-256color,,\r\n')
    },
  )

  test('gets the end of its input as Ctrl-D', posixOnly(NO_TTY), async (t) => {
    for (const typed of ['', 'a line\n', 'a part']) {
      const terminal = openTerminal(t, 'sh', ['-c', 'stty -echo; echo on; exec cat'])
      await terminal.sees(/on\r\n/)
      terminal.child.stdin.end(typed)
      const { exitCode } = await terminal.child.wait()
      await terminal.closed
      assert.deepEqual([exitCode, terminal.said], [0, `on\r\n${typed.replace('\n', '\r\n')}`])
    }
  })
})

describe('the bot', options, () => {
  test('has two streams and null for stderr', async (t) => {
    const { child, closed } = sh(t, 'echo out; echo err >&2')
    assert.deepEqual(child.stdio, [child.stdin, child.stdout, null])
    assert.equal(child.stderr, null)
    await closed
  })

  test('always gets spawn, data, exit and close in this order', notInDeno(NO_ORDER), async (t) => {
    for (let round = 0; round < (isWindows ? 20 : 300); round++) {
      const received = []
      const child = spawnOwned('echo', ['out'], { pty: true })
      t.after(() => child.cancel())
      for (const event of ['spawn', 'exit', 'close', 'error']) child.on(event, () => received.push(event))
      // A line can arrive in two pieces: its text and its end.
      const addOnce = (what) => received.at(-1) === what || received.push(what)
      child.stdout.on('data', () => addOnce('data')).on('error', ({ code }) => received.push(code))
      await once(child, 'close')
      assert.deepEqual(received, ['spawn', 'data', 'exit', 'close'], `round ${round}`)
    }
  })

  test('gets the same error as with pipes if a command cannot be started', async () => {
    for (const pty of [false, true]) {
      for (const [command, cwd, code] of [
        ['no-such-command', undefined, 'ENOENT'],
        ['true', '/no/such/directory', 'ENOENT'],
        ...(isWindows ? [] : [['/etc/passwd', undefined, 'EACCES']]),
      ]) {
        const child = spawnOwned(command, [], { cwd, pty })
        child.stdout.resume()
        const closed = new Promise((resolve) => child.once('close', resolve))
        const [error] = await once(child, 'error')
        assert.deepEqual([error.code, child.pid], [code, undefined])
        assert.equal((await child.wait()).reason, 'spawn-error')
        await closed
      }
    }
  })

  test(
    'resizes the terminal, and the process in the foreground gets SIGWINCH',
    notUnderWine(WINE_CONNECTS_NO_STREAMS),
    async (t) => {
      const terminal = openTerminal(t, process.execPath, [script('reports-terminal-size.mjs')], {
        pty: { cols: 90, rows: 20 },
      })
      await terminal.sees(/size 90x20/)
      terminal.child.resize(120, 50)
      await terminal.sees(/size 120x50/)
      if (isWindows) return
      terminal.child.resize(65_535, 1)
      await terminal.sees(/size 65535x1/)
    },
  )

  test('gets an error for a wrong size, and the size stays', async (t) => {
    const terminal = sh(t, `echo on; read -r _; ${isWindows ? 'echo 24 80' : 'stty size'}`)
    await terminal.sees(/on/)
    const { child } = terminal
    for (const size of [0, -1, 65_536, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      assert.throws(() => child.resize(size, 24), { code: 'ERR_OUT_OF_RANGE', message: /"cols".*65535/ })
      assert.throws(() => child.resize(80, size), { code: 'ERR_OUT_OF_RANGE', message: /"rows".*65535/ })
    }
    assert.throws(() => child.resize('80', 24), { code: 'ERR_INVALID_ARG_TYPE', message: /"cols"/ })
    assert.throws(() => child.resize(80), { code: 'ERR_INVALID_ARG_TYPE', message: /"rows"/ })
    terminal.type(isWindows ? '\r' : '\n')
    await terminal.sees(/24 80/)
    await terminal.closed
    assert.throws(() => child.resize(80, 24), { code: 'ERR_OWNED_TERMINAL_GONE', message: /is closed/ })
  })

  test('cannot resize a run that has no terminal', async (t) => {
    const child = spawnOwned('cat')
    t.after(() => child.cancel())
    assert.throws(() => child.resize(80, 24), { code: 'ERR_OWNED_NO_TERMINAL', message: /options\.pty/ })
    child.stdin.end()
    await child.wait()
  })

  test('hangs up the terminal if it destroys its output', posixOnly(NO_TTY), async (t) => {
    const witness = openWitness(t)
    const terminal = sh(t, `exec 3>'${witness.path}'; echo on; while sleep 0.01; do echo x; done`)
    await terminal.sees(/on/)
    witness.release()
    terminal.child.stdout.destroy()
    const { reason, signal } = await terminal.child.wait()
    assert.ok(witness.isGone())
    assert.deepEqual([reason, signal], ['signal', 'SIGHUP'])
    assert.throws(() => terminal.child.resize(80, 24), { code: 'ERR_OWNED_TERMINAL_GONE' })
  })
})

describe('spawnOwned checks the options of a terminal:', options, () => {
  const range = 'ERR_OUT_OF_RANGE'
  const type = 'ERR_INVALID_ARG_TYPE'
  const value = 'ERR_INVALID_ARG_VALUE'
  const rows = [
    ...[0, -1, 65_536, 1e9, 1.5, Number.NaN].map((size) => [
      { pty: { cols: size } },
      range,
      /options\.pty\.cols.*1 && <= 65535/,
    ]),
    ...[0, -1, 65_536].map((size) => [{ pty: { rows: size } }, range, /options\.pty\.rows.*1 && <= 65535/]),
    [{ pty: { cols: '80' } }, type, /options\.pty\.cols/],
    [{ pty: { rows: null } }, type, /options\.pty\.rows/],
    [{ pty: { name: 7 } }, type, /options\.pty\.name/],
    [{ pty: { name: '' } }, value, /options\.pty\.name.*xterm-256color/],
    [{ pty: { name: 'a\0b' } }, value, /options\.pty\.name.*null bytes/],
    ...['inherit', 'ignore', ['pipe', 'pipe', 'pipe'], [0, 1, 2], []].map((stdio) => [
      { pty: true, stdio },
      value,
      /options\.stdio.*options\.pty.*Remove one/,
    ]),
    [{ pty: true, detached: true }, value, /options\.detached.*options\.pty.*Remove one/],
    [
      { pty: true, onOwnerExit: 'keep' },
      value,
      /options\.onOwnerExit.*options\.pty.*closed when the bot exits/,
    ],
  ]
  for (const [given, code, message] of rows) {
    test(`it throws and starts nothing for ${JSON.stringify(given)}`, () => {
      const runs = terminalFds().length
      assert.throws(() => spawnOwned('cat', [], given), { code, message })
      assert.equal(terminalFds().length, runs)
    })
  }

  test('it accepts values that equal the defaults', posixOnly(NO_TTY), async (t) => {
    assert.equal(await output(t, 'echo on', { stdio: 'pipe', detached: false }), 'on\r\n')
    const child = spawnOwned('sh', ['-c', 'test -t 1 || echo pipe'], { pty: false })
    t.after(() => child.cancel())
    assert.equal((await once(child.stdout, 'data')).toString(), 'pipe\n')
    await child.wait()
  })
})

/** Our file descriptors of terminals. Only Linux lists them. */
function terminalFds() {
  if (!isLinux) return []
  const links = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`)
    } catch {
      return ''
    }
  })
  return links.filter((link) => /ptmx|pts\//.test(link))
}

describe('no data is lost:', { timeout: 120_000 }, () => {
  test('the bot reads 1 MB that is written just before the exit, 200 times', posixOnly(NO_TTY), async (t) => {
    const size = 1_000_000
    for (let round = 0; round < 200; round++) {
      const child = spawnOwned('head', ['-c', String(size), '/dev/zero'], { pty: true })
      t.after(() => child.cancel())
      let received = 0
      child.stdout.on('data', (bytes) => (received += bytes.length))
      await once(child, 'close')
      assert.equal(received, size, `round ${round}`)
    }
  })

  test('a reader that pauses blocks the command and later gets all output', posixOnly(NO_TTY), async (t) => {
    const size = 4_000_000
    const child = spawnOwned('sh', ['-c', `head -c ${size} /dev/zero; echo over >&2`], { pty: true })
    t.after(() => child.cancel())
    let received = 0
    child.stdout.once('data', () => child.stdout.pause())
    child.stdout.on('data', (bytes) => (received += bytes.length))
    await once(child.stdout, 'pause')
    // The command can write only as much as the buffers in between hold.
    const written = await settled(() => received)
    assert.ok(written < size / 2, `${written} of ${size} bytes were written although the reader has paused`)
    assert.equal(child.exitCode, null)
    child.stdout.resume()
    await once(child, 'close')
    assert.equal(received, size + 'over\r\n'.length)
  })

  for (const [name, modes] of [
    ['lines', '-echo'],
    ['raw bytes', 'raw -echo'],
  ]) {
    test(`a slow reader gets 8 MB of pasted ${name}`, posixOnly(NO_TTY), async (t) => {
      const line = `${'paste '.repeat(16)}\n`
      const paste = line.repeat(Math.floor(8_000_000 / line.length))
      const terminal = sh(t, `stty ${modes}; echo on; { sleep 0.2; head -c ${paste.length}; } | sha256sum`)
      await terminal.sees(/on\r?\n/)
      // The event loop must not block meanwhile.
      let turns = 0
      const timer = setInterval(() => turns++, 1)
      terminal.type(paste)
      const [text] = await terminal.sees(/[0-9a-f]{64}/, 50_000)
      clearInterval(timer)
      assert.equal(text, createHash('sha256').update(paste).digest('hex'))
      assert.ok(turns > 10, `${turns} turns of the event loop`)
    })
  }

  test(
    'the output ends when the tree has ended, even if another process has the terminal open',
    posixOnly(NO_TTY),
    async (t) => {
      const terminal = sh(t, 'tty; read -r _; echo last')
      const [path] = await terminal.sees(/\/dev\/pts\/\d+/)
      const otherRun = spawnOwned('sh', ['-c', 'exec 3>"$0"; echo on; read -r _', path])
      t.after(() => otherRun.cancel())
      await once(otherRun.stdout, 'data')
      terminal.type('\n')
      await terminal.closed
      assert.match(terminal.said, /last\r\n$/)
      assert.equal(otherRun.exitCode, null)
    },
  )

  test(
    'the bot gets the output of a command that closes its streams and opens its terminal again',
    posixOnly(NO_TTY),
    async (t) => {
      const text = await output(t, 'exec 0<&- 1>&- 2>&-; sleep 0.1; echo back > /dev/tty')
      assert.equal(text, 'back\r\n')
    },
  )

  test('no file descriptor is left', notInDeno(NO_WAITING, linuxOnly(NO_PROC)), async (t) => {
    await output(t, 'true')
    const before = readdirSync('/proc/self/fd').length
    for (let round = 0; round < 20; round++) await output(t, 'true')
    await settled(() => readdirSync('/proc/self/fd').length)
    assert.ok(readdirSync('/proc/self/fd').length <= before)
    assert.deepEqual(terminalFds(), [])
  })
})

/** Returns the value after it has not changed for a while. */
async function settled(value) {
  let last = value()
  for (let quiet = 0; quiet < 20; quiet++) {
    await new Promise((resolve) => setTimeout(resolve, 10))
    if (value() !== last) quiet = 0
    last = value()
  }
  return last
}
