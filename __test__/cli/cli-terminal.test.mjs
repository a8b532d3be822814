// The command line at a terminal: top, run, Ctrl-C, widths.
import assert from 'node:assert/strict'
import { stripVTControlCharacters } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry } from '../support/bots.mjs'
import { cli } from '../support/cli.mjs'
import { program } from '../support/fixtures.mjs'
import { NO_TTY, posixTests } from '../support/system.mjs'
import { openTerminal } from '../support/terminal.mjs'
import { openWitness } from '../support/witness.mjs'

const { describe, test } = posixTests(NO_TTY)

const options = { timeout: 60_000 }
const CTRL_C = '\x03'
const stripped = stripVTControlCharacters

/** Starts `spawn-owned ARGS` in a new terminal. */
function at(t, registryPath, args, { cols = 100, rows = 24, env = {} } = {}) {
  return openTerminal(t, process.execPath, [cli, ...args], {
    pty: { cols, rows },
    env: { ...process.env, NO_COLOR: '', SPAWN_OWNED_REGISTRY: registryPath, ...env },
  })
}

function startRuns(t, runs) {
  const registryPath = freshRegistry()
  const supervisor = createSupervisor({ registryPath })
  const started = Object.fromEntries(
    runs.map((runId) => {
      const witness = openWitness(t)
      const child = supervisor.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore', runId })
      t.after(() => child.cancel({ graceMs: 0 }))
      return [runId, { witness, child }]
    }),
  )
  return {
    registryPath,
    supervisor,
    started,
    ready: Promise.all(Object.values(started).map(({ witness }) => witness.ready(1))),
  }
}

describe('run', options, () => {
  test('gives the command a terminal of the same size, and passes typed input on', async (t) => {
    const terminal = at(
      t,
      freshRegistry(),
      ['run', '--', 'sh', '-c', 'stty size; read word; echo "got $word"; test -t 2'],
      {
        cols: 91,
        rows: 17,
      },
    )
    await terminal.sees(/17 91/)
    terminal.type('this\r')
    await terminal.sees(/got this/)
    const { exitCode } = await terminal.child.wait()
    assert.equal(exitCode, 0)
  })

  test('passes a change of size on', async (t) => {
    const script = 'trap "stty size" WINCH; echo waits; while :; do read word && exit 0; done'
    const terminal = at(t, freshRegistry(), ['run', '--', 'sh', '-c', script])
    await terminal.sees(/waits/)
    terminal.child.resize(77, 11)
    await terminal.sees(/11 77/)
    terminal.type('\r')
    await terminal.child.wait()
  })

  test('passes Ctrl-C to the command, and no process is left', async (t) => {
    const witness = openWitness(t)
    const stays = `'${program('stays')}' '${witness.path}'`
    const line = `setsid ${stays} & ${stays} & exec sleep 1000`
    const terminal = at(t, freshRegistry(), ['run', '--', 'sh', '-c', line])
    await witness.ready(2)
    terminal.type(CTRL_C)
    const { exitCode } = await terminal.child.wait()
    assert.equal(exitCode, 130)
    assertGone(witness)
  })

  test('with --no-pty terminates the whole tree at Ctrl-C, and kills it at the second Ctrl-C', async (t) => {
    const witness = openWitness(t)
    const terminal = at(t, freshRegistry(), [
      'run',
      '--no-pty',
      '--grace',
      '1h',
      '--',
      program('ignores-sigterm'),
      witness.path,
    ])
    await witness.ready(2)
    terminal.type(CTRL_C)
    await terminal.sees(/again to kill it/)
    assertAlive(witness)
    terminal.type(CTRL_C)
    const { exitCode } = await terminal.child.wait()
    assert.equal(exitCode, 137)
    assertGone(witness)
  })

  test('restores the settings of the terminal when the command exits', async (t) => {
    const terminal = openTerminal(
      t,
      'sh',
      [
        '-c',
        `before=$(stty -g); '${process.execPath}' '${cli}' run -- true; test "$before" = "$(stty -g)" && echo same`,
      ],
      { env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() } },
    )
    await terminal.sees(/same/)
  })
})

describe('top', options, () => {
  test('lists the runs, sorts them, and restores the screen at the end', async (t) => {
    const { registryPath, ready } = startRuns(t, ['first-run', 'second-run'])
    await ready
    const terminal = at(t, registryPath, ['top', '--interval', '200ms'])
    await terminal.sees(/2 runs in/)
    await terminal.sees(/first-run/)
    terminal.type('a')
    await terminal.sees(/by age/)
    terminal.type('m')
    await terminal.sees(/by memory/)
    terminal.type('q')
    assert.equal((await terminal.child.wait()).exitCode, 0)
    await terminal.closed
    assert.ok(terminal.said.startsWith('\x1b[?1049h'))
    assert.ok(terminal.said.endsWith('\x1b[?25h\x1b[?1049l'))
  })

  test('cancels the selected run after y, and no other', async (t) => {
    const { registryPath, started, ready } = startRuns(t, ['first-run', 'second-run'])
    await ready
    const terminal = at(t, registryPath, ['top', '--interval', '200ms'])
    await terminal.sees(/first-run/)
    terminal.type('a')
    await terminal.sees(/by age/)
    terminal.type('x')
    await terminal.sees(/cancel first-run\? y\/n/)
    terminal.type('n')
    await terminal.sees(/q quit/)
    assertAlive(started['first-run'].witness)
    terminal.type('j')
    terminal.type('x')
    await terminal.sees(/cancel second-run\? y\/n/)
    terminal.type('y')
    assert.equal((await started['second-run'].child.wait()).reason, 'manual-cancel')
    await terminal.sees(/1 run in/)
    assertAlive(started['first-run'].witness)
    terminal.type(CTRL_C)
    assert.equal((await terminal.child.wait()).exitCode, 0)
  })

  test('prints no line longer than the terminal, also after a resize', async (t) => {
    const { registryPath, ready } = startRuns(t, ['a-run-with-a-rather-long-name'])
    await ready
    const terminal = at(t, registryPath, ['top', '--interval', '200ms'], { cols: 60 })
    await terminal.sees(/a-run-with/)
    terminal.child.resize(40, 10)
    await terminal.sees(/\[10;1H/)
    terminal.type('q')
    await terminal.child.wait()
    await terminal.closed
    const last = terminal.said.slice(terminal.said.lastIndexOf('\x1b[H'))
    for (const line of stripped(last).split(/\r*\n/).slice(0, -1))
      assert.ok(line.length <= 40, JSON.stringify(line))
  })
})

describe('ps', options, () => {
  for (const cols of [60, 80, 120]) {
    test(`fits into ${cols} columns, in colour`, async (t) => {
      const { registryPath, ready } = startRuns(t, ['a-run'])
      await ready
      const terminal = at(t, registryPath, ['ps'], { cols })
      await terminal.closed
      assert.match(terminal.said, /\[32mrunning/)
      const [header, row] = stripped(terminal.said).split('\r\n')
      assert.ok(row.length <= Math.max(cols, header.length + 8), `${row.length}: ${row}`)
      if (cols >= 120) assert.equal(row.length, cols)
    })
  }
})
