// Bots that are services of a real systemd: what docs/systemd.md says of stopping, crashing and starting again. Each bot has two runs that clean
// up when they are asked to end; one of them is to be kept. Who is left is told by systemd's own cgroups, and what happened by a log.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { until } from './support/bots.mjs'
import { script } from './support/fixtures.mjs'
import { removeFolder } from './support/system.mjs'
import { bootSystemd, withoutSystemd } from './support/systemd.mjs'

const options = { timeout: 240_000, skip: withoutSystemd }
const KEPT = { agent: {}, kept: { onOwnerExit: 'keep' } }
const CAGED = { caged: { containment: 'cgroup' }, limited: { limits: { memoryBytes: 1e9 } } }

/** A systemd with one service, whose bot is up, and its runs stand. */
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
    await until(() => this.systemd.property('bot', 'ActiveState') === 'failed', 'it is noticed', 60_000)
  }

  /** What was written down since it was started, and begins like this. */
  notes(...beginning) {
    const lines = readFileSync(this.#log, 'utf8').split('\n').slice(0, -1)
    const notes = lines.map((line) => JSON.parse(line))
    return notes.filter((note) => beginning.every((word, at) => note[at] === word))
  }

  isNoted(...note) {
    return this.notes(...note).length > 0
  }

  isAlive(run) {
    return this.systemd.members('bot').some((line) => line.includes(` sh ${run} `))
  }
}

describe('a bot with KillMode=mixed', options, () => {
  test('ends its runs when it is stopped; systemd ends what was to be kept', options, async (t) => {
    const bot = await running(t, 'KillMode=mixed')
    bot.stop()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(bot.isNoted('cleaned up', 'agent') && bot.isNoted('ended', 'agent', 'shutdown'))
    assert.ok(!bot.isNoted('cleaned up', 'kept'))
    await bot.start()
    assert.deepEqual(bot.notes('reaped'), [['reaped', { killed: 0, alreadyDead: 1, adopted: [] }]])
  })

  test('leaves nothing when it crashes', options, async (t) => {
    const bot = await running(t, 'KillMode=mixed')
    await bot.crash()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(!bot.isNoted('cleaned up', 'kept'))
  })
})

describe('a bot with KillMode=control-group', options, () => {
  test('ends its runs when it is stopped, while systemd asks everybody', options, async (t) => {
    const bot = await running(t, 'KillMode=control-group')
    bot.stop()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(bot.isNoted('cleaned up', 'agent') && bot.isNoted('cleaned up', 'kept'))
  })

  test('leaves nothing when it crashes, and everybody cleans up', options, async (t) => {
    const bot = await running(t, 'KillMode=control-group')
    await bot.crash()
    assert.deepEqual(bot.systemd.members('bot'), [])
    assert.ok(bot.isNoted('cleaned up', 'agent') && bot.isNoted('cleaned up', 'kept'))
  })
})

describe('a bot with KillMode=process', options, () => {
  test(
    'ends its runs when it is stopped, and the next one adopts what was to be kept',
    options,
    async (t) => {
      const bot = await running(t, 'KillMode=process')
      bot.stop()
      assert.ok(bot.isNoted('ended', 'agent', 'shutdown'))
      assert.deepEqual([bot.isAlive('agent'), bot.isAlive('kept')], [false, true])
      await bot.start()
      assert.deepEqual(bot.notes('reaped'), [['reaped', { killed: 0, alreadyDead: 0, adopted: ['kept'] }]])
    },
  )

  test('leaves a crash to its keepers: they end what is not to be kept', options, async (t) => {
    const bot = await running(t, 'KillMode=process')
    await bot.crash()
    await until(() => !bot.isAlive('agent'), 'its keeper has ended it', 60_000)
    assert.ok(bot.isNoted('cleaned up', 'agent'))
    assert.ok(bot.isAlive('kept'))
  })
})

describe('a run gets a cgroup', options, () => {
  test('if the unit is delegated; limits need more', options, async (t) => {
    const bot = await running(t, 'Delegate=yes', CAGED)
    assert.deepEqual(bot.notes('refused'), [['refused', 'limited', 'ERR_OWNED_CGROUP']])
    assert.match(bot.systemd.systemctl('status', 'bot', '--no-pager'), /─spawn-owned-\d+-\d+-\d+\n/)
  })

  test('and not, if it is not', options, async (t) => {
    const bot = await running(t, '', CAGED)
    const refused = ['caged', 'limited'].map((run) => ['refused', run, 'ERR_OWNED_CGROUP'])
    assert.deepEqual(bot.notes('refused'), refused)
  })
})
