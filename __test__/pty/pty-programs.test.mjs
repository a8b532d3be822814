// Real programs in a terminal: shells with job control, a REPL, a pager, an editor, a password
// prompt, a terminal in a terminal.
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert, CLEANED_UP, FOR_EVER, openWitness, program } from '../support/prelude.mjs'
import { linuxOnly, NO_SETSID, NO_TTY, posixTests } from '../support/system.mjs'
import { openTerminal } from '../support/terminal.mjs'

const { describe, test } = posixTests(NO_TTY)

const [CTRL_C, CTRL_D, CTRL_Z] = ['\x03', '\x04', '\x1a']
const options = { timeout: 60_000 }

/** Options of a test that is skipped if this program is not installed. */
const needs = (command) => ({
  ...options,
  skip: spawnSync('sh', ['-c', `command -v ${command}`]).status !== 0 && `${command} is not installed`,
})

/** Opens a shell whose prompt differs from its echoed input. */
async function openShell(t, command = 'bash', args = ['--norc', '--noprofile', '-i'], more = {}) {
  const env = { ...process.env, PS1: '$((6*7))-ready ', PS2: '', ENV: '', PROMPT_COMMAND: '' }
  const terminal = openTerminal(t, command, args, { env, pty: { name: 'dumb' }, ...more })
  const prompt = () => terminal.sees(/42-ready /)
  await prompt()
  return { terminal, prompt }
}

describe('bash -i', options, () => {
  test('is cancelled with its jobs before the grace is over', linuxOnly(NO_SETSID), async (t) => {
    const witness = openWitness(t)
    const { terminal, prompt } = await openShell(t)
    const job = `'${program('stays')}' '${witness.path}' < /dev/null`
    // Jobs in the background, in a subshell, and in their own session.
    terminal.type(`${job} & (${job} &) ; setsid ${job} &\r`)
    await witness.ready(3)
    await prompt()
    terminal.type(`${program('stays')} '${witness.path}'\r`)
    await terminal.sees(/stays/)
    const exit = await terminal.child.cancel({ graceMs: FOR_EVER })
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([exit.reason, exit.signal, exit.survivors], ['manual-cancel', 'SIGHUP', []])
    await terminal.closed
  })

  test('is not hung up before its jobs have cleaned up', async (t) => {
    const witness = openWitness(t)
    const { terminal } = await openShell(t)
    terminal.type(`'${program('cleans-up-on-sigterm')}' '${witness.path}' &\r`)
    await witness.ready(2)
    const exit = await terminal.child.cancel({ graceMs: FOR_EVER })
    assert.ok(witness.isGone(), witness.holders())
    assert.equal(witness.count(CLEANED_UP), 2)
    assert.equal(exit.signal, 'SIGHUP')
  })

  test('has job control with Ctrl-C, Ctrl-Z, fg and Ctrl-D', async (t) => {
    const { terminal, prompt } = await openShell(t)
    terminal.type('sleep 1000\r')
    await terminal.sees(/sleep 1000\r\n/)
    await foreground(terminal, 'sleep')
    terminal.type(CTRL_C)
    await prompt()
    terminal.type('echo "code $?"\r')
    await terminal.sees(/code 130/)
    await prompt()
    terminal.type('cat\r')
    await foreground(terminal, 'cat')
    terminal.type(CTRL_Z)
    await terminal.sees(/Stopped\s+cat/)
    await prompt()
    terminal.type('fg\r')
    await foreground(terminal, 'cat')
    terminal.type('to cat\r')
    await terminal.sees(/to cat\r\nto cat\r\n/)
    terminal.type(CTRL_D)
    await prompt()
    terminal.type(CTRL_D)
    const exit = await terminal.child.wait()
    assert.deepEqual([exit.reason, exit.exitCode], ['exit', 0])
    await terminal.closed
  })

  test('is cancelled together with a stopped job', async (t) => {
    const witness = openWitness(t)
    const { terminal, prompt } = await openShell(t)
    terminal.type(`'${program('stays')}' '${witness.path}'\r`)
    await witness.ready(1)
    terminal.type(CTRL_Z)
    await terminal.sees(/Stopped/)
    await prompt()
    const exit = await terminal.child.cancel({ graceMs: FOR_EVER })
    assert.ok(witness.isGone(), witness.holders())
    assert.equal(exit.reason, 'manual-cancel')
  })
})

describe('a cancel hangs up a shell that gets SIGTERM in a critical moment:', options, () => {
  for (const [name, processes] of [
    ['forks-like-bash', 1],
    ['forks-like-dash', 2],
    ['overhears-like-bash', 1],
  ]) {
    test(name, async (t) => {
      const witness = openWitness(t)
      const terminal = openTerminal(t, program(name), [witness.path])
      await witness.ready(processes)
      const exit = await terminal.child.cancel({ graceMs: FOR_EVER })
      assert.ok(witness.isGone(), witness.holders())
      assert.equal(exit.reason, 'manual-cancel')
      assert.ok(exit.signal === 'SIGHUP' || exit.exitCode === 129, exit.message)
    })
  }
})

test('a cancel hangs up sh -i', needs('dash'), async (t) => {
  const { terminal } = await openShell(t, 'dash', ['-i'])
  const exit = await terminal.child.cancel({ graceMs: FOR_EVER })
  assert.deepEqual([exit.reason, exit.signal], ['manual-cancel', 'SIGHUP'])
})

/** Waits until this command is in the foreground: a signal typed earlier would reach the shell. */
async function foreground(terminal, name) {
  const until = performance.now() + 20_000
  while (terminal.child.foreground !== name) {
    assert.ok(performance.now() < until, `${terminal.child.foreground} is in the foreground, not ${name}`)
    await new Promise(setImmediate)
  }
}

test('python3 works as a REPL', needs('python3'), async (t) => {
  const terminal = openTerminal(t, 'python3', ['-q'], { env: { ...process.env, PYTHON_BASIC_REPL: '1' } })
  await terminal.sees(/>>> /)
  terminal.type('import sys; sys.stdin.isatty(), 6 * 7\r')
  await terminal.sees(/\(True, 42\)/)
  await terminal.sees(/>>> /)
  // It says that it is in the loop: SIGINT that arrives between a prompt and its read can be lost.
  terminal.type("exec(\"print('in' 'side')\\nwhile True: pass\")\r")
  await terminal.sees(/inside/)
  terminal.type(CTRL_C)
  await terminal.sees(/KeyboardInterrupt/)
  await terminal.sees(/>>> /)
  terminal.type('raise SystemExit(3)\r')
  assert.equal((await terminal.child.wait()).exitCode, 3)
})

/**
 * Resizes until the program reacts. A program that gets SIGWINCH just before it waits for a key can
 * miss it until the next one.
 */
async function resized(terminal, cols, rows, pattern) {
  let again = 0
  const resize = () => terminal.child.resize(cols, rows + (again++ % 2))
  const timer = setInterval(resize, 500)
  resize()
  try {
    await terminal.sees(pattern)
  } finally {
    clearInterval(timer)
  }
}

describe('after a resize', options, () => {
  test('less shows more lines', needs('less'), async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'less-'))
    t.after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))
    const file = join(folder, 'lines')
    writeFileSync(file, Array.from({ length: 200 }, (_, n) => `line-${n + 1}-\n`).join(''))
    const terminal = openTerminal(t, 'less', [file], { env: { ...process.env, LESS: '' }, pty: { rows: 10 } })
    await terminal.sees(/line-9-/)
    assert.doesNotMatch(terminal.said, /line-10-/)
    await resized(terminal, 80, 40, /line-39-/)
    assert.doesNotMatch(terminal.said, /line-41-/)
    terminal.type('q')
    assert.equal((await terminal.child.wait()).exitCode, 0)
  })

  test('vi has the new size', needs('vi'), async (t) => {
    const terminal = openTerminal(t, 'vi', ['-u', 'NONE', '-n'], { pty: { cols: 80, rows: 24 } })
    await terminal.sees(/~/)
    terminal.type(':set columns?\r')
    await terminal.sees(/columns=80/)
    await resized(terminal, 101, 30, /~/)
    terminal.type(':set columns?\r')
    await terminal.sees(/columns=101/)
    terminal.type(':q!\r')
    assert.equal((await terminal.child.wait()).exitCode, 0)
  })
})

test('a password is not echoed', options, async (t) => {
  const line = 'read -rs -p "Password: " word; echo; test "$word" = secret && echo "it is right"'
  const terminal = openTerminal(t, 'bash', ['-c', line])
  await terminal.sees(/Password: /)
  terminal.type('secret\r')
  await terminal.sees(/it is right/)
  await terminal.closed
  assert.doesNotMatch(terminal.said, /secret/)
})

describe('a terminal in a terminal', needs('script'), () => {
  const inner = (line) => ['-qec', line, '/dev/null']

  test('passes on input, output, size and exit code', async (t) => {
    const terminal = openTerminal(
      t,
      'script',
      inner('stty size; tty; read -r word; echo "<$word>"; exit 4'),
      {
        pty: { cols: 97, rows: 31 },
      },
    )
    await terminal.sees(/31 97/)
    await terminal.sees(/pts/)
    terminal.type('typed\r')
    await terminal.sees(/<typed>/)
    const exit = await terminal.child.wait()
    await terminal.closed
    assert.equal(exit.exitCode, 4)
  })

  test('is ended with the shell in it and its jobs', async (t) => {
    const witness = openWitness(t)
    const line = `'${program('stays')}' '${witness.path}' < /dev/null & exec bash --norc -i`
    const terminal = openTerminal(t, 'script', inner(line))
    await witness.ready(1)
    const exit = await terminal.child.cancel({ graceMs: FOR_EVER })
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([exit.reason, exit.survivors], ['manual-cancel', []])
  })
})

test('Ctrl-C reaches only the processes in the foreground', linuxOnly(NO_SETSID, options), async (t) => {
  const witness = openWitness(t)
  // The child of bash says that it runs: bash itself handles SIGINT and starts the next command.
  const line = `setsid '${program('stays')}' '${witness.path}' < /dev/null & trap 'echo caught' INT; sh -c 'echo on; exec sleep 1000'; echo after; read -r _`
  const terminal = openTerminal(t, 'bash', ['-c', line])
  await terminal.sees(/on\r\n/)
  await witness.ready(1)
  terminal.type(CTRL_C)
  await terminal.sees(/caught/)
  await terminal.sees(/after/)
  assert.equal(witness.isGone(), false)
  terminal.type('\r')
  await once(terminal.child, 'exit')
})
