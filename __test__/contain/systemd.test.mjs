// Bots that are services of a real systemd. The tests show what docs/systemd.md says about stop,
// crash and restart. Each bot has two runs that clean up on SIGTERM; one of them is to be kept. The
// cgroups of systemd show which processes are left, and a log shows what happened.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../support/bots.mjs'
import { assert, describe, script, test } from '../support/prelude.mjs'
import { removeFolder } from '../support/system.mjs'
import { bootSystemd, withoutSystemd } from '../support/systemd.mjs'

const options = { timeout: 240_000, skip: withoutSystemd }
const KEPT = { agent: {}, kept: { onOwnerExit: 'keep' } }
const CAGED = { caged: { containment: 'cgroup' }, limited: { limits: { memoryBytes: 1e9 } } }

/** Boots a systemd with one service, and resolves when its bot is up and its runs are ready. */
async function running(t, more, runs = KEPT) {
  const folder = mkdtempSync(join(tmpdir(), 'unit-'))
  t.after(() => removeFolder(folder))
  const log = join(folder, 'log')
  writeFileSync(log, '')
  const quoted = JSON.stringify(JSON.stringify(runs))
  const systemd = await bootSystemd(t, {
    bot: `ExecStart=${process.execPath} ${script('bot-of-a-unit.mjs')} ${log} ${quoted}
Environment=SPAWN_OWNED_REGISTRY=%S/bot/process-registry.json
StateDirectory=bot
TimeoutStopSec=60
${more}`,
  })
  const bot = new Bot(systemd, log, Object.keys(runs))
  await bot.start()
  return bot
}

class Bot {
  #log
  #runs

  constructor(systemd, log, runs) {
    this.systemd = systemd
    this.#log = log
    this.#runs = runs
  }

  async start() {
    writeFileSync(this.#log, '')
    this.systemd.systemctl('reset-failed')
    this.systemd.systemctl('start', 'bot')
    const stands = (run) => this.isNoted('standing', run) || this.notes('refused', run).length > 0
    await until(() => this.isNoted('up') && this.#runs.every(stands), 'the bot is up', 60_000)
  }

  stop() {
    this.systemd.systemctl('stop', 'bot')
  }

  async crash() {
    this.systemd.run('kill', '-KILL', this.systemd.property('bot', 'MainPID'))
    await until(
      () => this.systemd.property('bot', 'ActiveState') === 'failed',
      'systemd has noticed the crash',
      60_000,
    )
  }

  /** The log lines since the start of the bot that begin with these words. */
  notes(...firstWords) {
    const lines = readFileSync(this.#log, 'utf8').split('\n').slice(0, -1)
    const notes = lines.map((line) => JSON.parse(line))
    return notes.filter((note) => firstWords.every((word, at) => note[at] === word))
  }

  isNoted(...note) {
    return this.notes(...note).length > 0
  }

  isAlive(run) {
    return this.systemd.members('bot').some((line) => line.includes(` sh ${run} `))
  }
}

describe('a bot with KillMode=mixed', options, () => {
  test('ends its runs when it is stopped, and systemd ends the run to be kept', options, async (t) => {
    const bot = await running(t, 'KillMode=mixed')
    bot.stop()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(bot.isNoted('cleaned up', 'agent') && bot.isNoted('ended', 'agent', 'shutdown'))
    assert.ok(!bot.isNoted('cleaned up', 'kept'))
    await bot.start()
    assert.deepEqual(bot.notes('reaped'), [['reaped', { killed: 0, alreadyDead: 1, adopted: [] }]])
  })

  test('leaves no process when it crashes', options, async (t) => {
    const bot = await running(t, 'KillMode=mixed')
    await bot.crash()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(!bot.isNoted('cleaned up', 'kept'))
  })
})

describe('a bot with KillMode=control-group', options, () => {
  test(
    'ends its runs when it is stopped, while systemd sends SIGTERM to all processes',
    options,
    async (t) => {
      const bot = await running(t, 'KillMode=control-group')
      bot.stop()
      assert.deepEqual(bot.systemd.members('bot'), [])
      assert.ok(bot.isNoted('cleaned up', 'agent') && bot.isNoted('cleaned up', 'kept'))
    },
  )

  test('leaves no process when it crashes, and all runs clean up', options, async (t) => {
    const bot = await running(t, 'KillMode=control-group')
    await bot.crash()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(bot.isNoted('cleaned up', 'agent') && bot.isNoted('cleaned up', 'kept'))
  })
})

describe('a bot with KillMode=process', options, () => {
  test('ends its runs when it is stopped, and the next bot adopts the run to be kept', options, async (t) => {
    const bot = await running(t, 'KillMode=process')
    bot.stop()
    assert.ok(bot.isNoted('ended', 'agent', 'shutdown'))
    assert.deepEqual([bot.isAlive('agent'), bot.isAlive('kept')], [false, true])
    await bot.start()
    assert.deepEqual(bot.notes('reaped'), [['reaped', { killed: 0, alreadyDead: 0, adopted: ['kept'] }]])
  })

  test('crashes, and its keepers end the runs that are not to be kept', options, async (t) => {
    const bot = await running(t, 'KillMode=process')
    await bot.crash()
    await until(() => !bot.isAlive('agent'), 'the keeper has ended the run', 60_000)
    assert.ok(bot.isNoted('cleaned up', 'agent'))
    assert.ok(bot.isAlive('kept'))
  })
})

describe('a service unit', options, () => {
  test('with Delegate=yes gives a run a cgroup, but no limits', options, async (t) => {
    const bot = await running(t, 'Delegate=yes', CAGED)
    assert.deepEqual(bot.notes('refused'), [['refused', 'limited', 'ERR_OWNED_CGROUP']])
    assert.match(bot.systemd.systemctl('status', 'bot', '--no-pager'), /─spawn-owned-\d+-\d+-\d+\n/)
  })

  test('without Delegate= gives a run no cgroup', options, async (t) => {
    const bot = await running(t, '', CAGED)
    const refused = ['caged', 'limited'].map((run) => ['refused', run, 'ERR_OWNED_CGROUP'])
    assert.deepEqual(bot.notes('refused'), refused)
  })
})
