// A run with a terminal lives and ends like any other: deadlines, idle timeout, scopes, registry,
// and the death of its bot and its keeper.
// (Hostile trees with terminals: hostile-trees.test.mjs.)
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { createSupervisor } from 'spawn-owned'
import { freshRegistry, keeperOf, startBot, until } from '../support/bots.mjs'
import { hostileTrees, treeNamed } from '../support/hostile-trees.mjs'
import { assert, describe, FOR_EVER, openWitness, program, test } from '../support/prelude.mjs'
import {
  isWindows,
  linuxOnly,
  NO_KEEPER,
  NO_SETSID,
  NO_SHELL,
  NO_TTY,
  notUnderWine,
  posixOnly,
  WINE_CONNECTS_NO_STREAMS,
  WINE_ECHOES_LINES,
  windowsOnly,
} from '../support/system.mjs'
import { openTerminal } from '../support/terminal.mjs'

const options = { timeout: 60_000 }
/** For a group of many tests that run in sequence. */
const all = { timeout: 600_000 }
const sh = (t, line, more) => openTerminal(t, 'sh', ['-c', line], more)

/**
 * An interactive shell with one background job and one job that has left its session. Each holds
 * the witness.
 */
const shellWithJobs = (witness) => [
  'bash',
  [
    '--norc',
    '-ic',
    `'${program('stays')}' '${witness.path}' & setsid '${program('stays')}' '${witness.path}' & exec bash --norc -i`,
  ],
]

describe('of a run with a terminal,', options, () => {
  test(
    'timeoutMs ends a shell that ignores SIGTERM before the grace is over',
    posixOnly(NO_TTY),
    async (t) => {
      const terminal = openTerminal(t, 'bash', ['--norc', '-i'], { timeoutMs: 500, graceMs: FOR_EVER })
      const exit = await terminal.child.wait()
      assert.deepEqual([exit.reason, exit.timedOut, exit.signal], ['overall-timeout', true, 'SIGHUP'])
      assert.equal(exit.message, 'turn timed out after 0.5s')
      await terminal.closed
    },
  )

  test(
    'noOutputTimeoutMs counts from the last output, which can be an echo',
    notUnderWine(WINE_ECHOES_LINES),
    async (t) => {
      const terminal = sh(t, 'echo on; exec cat > /dev/null', { noOutputTimeoutMs: 2000 })
      await terminal.sees(/on/)
      const from = performance.now()
      for (let keys = 0; keys < 5; keys++) {
        await new Promise((resolve) => setTimeout(resolve, 500))
        terminal.type('k')
        await terminal.sees(/k/)
      }
      assert.equal(terminal.child.state, 'running')
      const exit = await terminal.child.wait()
      assert.ok(performance.now() - from >= 5 * 500 + 1990)
      assert.deepEqual([exit.reason, exit.noOutputTimedOut], ['no-output-timeout', true])
    },
  )

  test(
    'noOutputTimeoutMs does not count while the bot has paused and output is waiting',
    posixOnly(NO_TTY),
    async (t) => {
      const terminal = sh(t, 'echo on; head -c 3000000 /dev/zero; exec sleep 1000', {
        noOutputTimeoutMs: 1200,
      })
      terminal.child.stdout.pause()
      await new Promise((resolve) => setTimeout(resolve, 3000))
      assert.equal(terminal.child.state, 'running')
      terminal.child.stdout.resume()
      const exit = await terminal.child.wait()
      assert.equal(exit.reason, 'no-output-timeout')
      await terminal.closed
      assert.equal(terminal.said.length, 3_000_000 + 'on\r\n'.length)
    },
  )
})

describe('with a scope,', options, () => {
  test(
    'a postponed run has streams and can be resized before it has a terminal',
    posixOnly(NO_TTY),
    async (t) => {
      const scope = { scopeKey: `pty-${process.pid}`, graceMs: 300 }
      const former = sh(t, "trap '' TERM; echo on; while :; do read -r _; done", scope)
      await former.sees(/on/)
      const later = openTerminal(t, 'sh', ['-c', 'stty -echo; stty size; head -n 1'], {
        ...scope,
        replaceExistingScope: true,
      })
      assert.deepEqual([later.child.state, later.child.pid], ['starting', undefined])
      assert.throws(() => later.child.resize(0, 1), { code: 'ERR_OUT_OF_RANGE' })
      later.child.resize(100, 40)
      later.type('typed before the start\n')
      await later.closed
      assert.equal(former.child.state, 'exited')
      assert.match(later.said, /40 100\r\n(.*\r\n)?typed before the start\r\n$/)
    },
  )

  test('a postponed run that is cancelled ends its streams', async (t) => {
    const scope = { scopeKey: `pty-off-${process.pid}`, graceMs: 300 }
    const reading = isWindows ? 'read -r _' : 'while :; do read -r _; done'
    const former = sh(t, `trap '' TERM; echo on; ${reading}`, scope)
    await former.sees(/on/)
    const later = openTerminal(t, 'cat', [], { ...scope, replaceExistingScope: true })
    const exit = await later.child.cancel()
    await later.closed
    assert.deepEqual([exit.reason, later.said], ['manual-cancel', ''])
    await former.child.wait()
  })
})

describe('the exit of the root', options, () => {
  // Processes that ignore SIGHUP survive the hang-up.
  const ignoreHangUp = "trap '' HUP; "

  test('hangs up the terminal, and the rest of the tree is ended', posixOnly(NO_SHELL), async (t) => {
    const witness = openWitness(t)
    const line = `${ignoreHangUp}'${program('ignores-sigterm')}' '${witness.path}' < /dev/null & read -r _; exit 7`
    const terminal = sh(t, line, { graceMs: 200 })
    await witness.ready(2)
    terminal.type('\n')
    const exit = await terminal.child.wait()
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([exit.reason, exit.exitCode, exit.survivors], ['exit', 7, []])
    await terminal.closed
  })

  test(
    'with onLeaderExit: keep leaves the rest running without a terminal',
    posixOnly(NO_SHELL),
    async (t) => {
      const witness = openWitness(t)
      const line = `${ignoreHangUp}'${program('ignores-sigterm')}' '${witness.path}' < /dev/null & read -r _`
      const terminal = sh(t, line, { onLeaderExit: 'keep', graceMs: 100 })
      await witness.ready(2)
      terminal.type('\n')
      await once(terminal.child, 'exit')
      assert.equal(witness.isGone(), false)
      const exit = await terminal.child.cancel()
      assert.ok(witness.isGone(), witness.holders())
      assert.equal(exit.reason, 'manual-cancel')
      await terminal.closed
    },
  )
})

describe('the registry', options, () => {
  test(
    'lists the run while it lives, and another process that cancels it ends it the same way',
    linuxOnly(NO_SETSID),
    async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witness = openWitness(t)
      const { runId } = await bot.ask('spawn', ...shellWithJobs(witness), { pty: true })
      await witness.ready(2)
      const supervisor = createSupervisor({ registryPath: path })
      const record = () => supervisor.list({ runId })[0]
      await until(() => record().state === 'running', 'the registry lists the run as running')
      assert.equal(record().containment, 'keeper')
      const result = await supervisor.cancel(runId, { graceMs: FOR_EVER })
      assert.ok(witness.isGone(), witness.holders())
      assert.equal(result.outcome, 'cancelled')
      assert.equal((await bot.ask('wait', runId)).reason, 'manual-cancel')
      assert.deepEqual(supervisor.list(), [])
    },
  )
})

/** The number of console hosts (conhost.exe) that exist for terminals of this process. */
function consoles() {
  const counts = execFileSync('counts', [String(process.pid), 'conhost.exe'], { encoding: 'utf8' })
  return Number(counts.trim().split(' ')[2])
}

test(
  'twenty commands that exit by themselves leave no console host',
  windowsOnly({ timeout: 120_000 }),
  async (t) => {
    const before = consoles()
    const stays = sh(t, 'echo on; read -r _')
    await stays.sees(/on/)
    assert.equal(consoles(), before + 1, 'the console host of a running command is counted')
    for (let run = 0; run < 20; run++) await sh(t, 'exit 0').closed
    // The output ends shortly before the console host exits.
    await until(() => consoles() <= before + 1, 'only the console host in use is left')
    stays.type('\r')
    await stays.closed
    await until(() => consoles() <= before, 'no console host is left')
  },
)

describe('the death', all, () => {
  for (const tree of hostileTrees) {
    test(
      `of the bot ends ${tree.name}`,
      tree.name === 'npx-like wrapper' ? notUnderWine(WINE_CONNECTS_NO_STREAMS, options) : options,
      async (t) => {
        const bot = await startBot(t, freshRegistry())
        const witness = openWitness(t)
        await bot.ask('spawn', ...tree.command(witness.path), { pty: true, graceMs: 300 })
        await witness.ready(tree.ready)
        await bot.kill()
        await witness.gone(20_000)
      },
    )
  }

  test('of the bot ends an interactive shell and its jobs', linuxOnly(NO_SETSID), async (t) => {
    const bot = await startBot(t, freshRegistry())
    const witness = openWitness(t)
    await bot.ask('spawn', ...shellWithJobs(witness), { pty: true })
    await witness.ready(2)
    await bot.kill()
    // Less than the default grace, because no bot is left to benefit from it.
    await witness.gone(4500)
  })

  test(
    'of bot, zygote and keeper at once leaves processes that survive the hang-up to the next bot',
    posixOnly(NO_KEEPER),
    async (t) => {
      const path = freshRegistry()
      const bot = await startBot(t, path)
      const witness = openWitness(t)
      const tree = treeNamed('ignores-sigterm')
      const { pid } = await bot.ask('spawn', ...tree.command(witness.path), { pty: true })
      await witness.ready(tree.ready)
      await bot.killWithHelpers()
      assert.equal(witness.isGone(), false)
      const { killed } = await createSupervisor({ registryPath: path }).reapOrphans(undefined, {
        graceMs: 100,
      })
      assert.ok(witness.isGone(), witness.holders())
      assert.deepEqual(killed, [pid])
    },
  )

  test('of the keeper ends the run and its streams', linuxOnly(NO_SETSID), async (t) => {
    const witness = openWitness(t)
    const supervisor = createSupervisor({ registryPath: freshRegistry() })
    const child = supervisor.spawnOwned(...shellWithJobs(witness), { pty: true })
    t.after(() => child.cancel())
    await witness.ready(2)
    const closed = once(child, 'close')
    child.stdout.resume()
    process.kill(keeperOf(supervisor.list({ runId: child.runId })[0]), 'SIGKILL')
    const exit = await child.wait()
    assert.ok(witness.isGone(), witness.holders())
    assert.deepEqual([exit.reason, exit.survivors], ['lost', []])
    await closed
  })
})
