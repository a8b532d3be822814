// survey(): the processes of every run and the state of its owner.
import { createSupervisor } from 'spawn-owned'
import { freshRegistry, startBot } from '../support/bots.mjs'
import { assert, openWitness, program, test } from '../support/prelude.mjs'
import { NO_SESSIONS, posixOnly } from '../support/system.mjs'

const options = { timeout: 30_000 }

test('survey lists every process of a run, and marks those that have left its session', {
  ...options,
  ...posixOnly(NO_SESSIONS),
}, async (t) => {
  const witness = openWitness(t)
  const supervisor = createSupervisor({ registryPath: freshRegistry() })
  const stays = `'${program('stays')}' '${witness.path}'`
  const child = supervisor.spawnOwned('sh', ['-c', `${stays} & setsid ${stays} & wait`])
  t.after(() => child.cancel({ graceMs: 0 }))
  await witness.ready(2)
  const [run, ...others] = await supervisor.survey({ runId: child.runId })
  assert.deepEqual(others, [])
  assert.equal(run.owner, 'me')
  assert.equal(run.record.runId, child.runId)
  const seen = run.members.map(({ command, escaped }) => `${command}${escaped ? ' escaped' : ''}`)
  assert.deepEqual(seen.toSorted(), ['sh', 'stays', 'stays escaped'])
  const root = run.members.find(({ pid }) => pid === child.pid)
  assert.equal(root.command, 'sh')
  for (const member of run.members) {
    assert.ok(member.rssBytes > 0 && member.ageMs < 30_000, JSON.stringify(member))
    if (member !== root) assert.equal(member.ppid, root.pid)
  }
})

test('survey says whether another bot that owns a run is alive', options, async (t) => {
  const registryPath = freshRegistry()
  const bot = await startBot(t, registryPath)
  const witness = openWitness(t)
  await bot.ask('spawn', program('stays'), [witness.path], { onOwnerExit: 'keep', runId: 'kept' })
  const supervisor = createSupervisor({ registryPath })
  t.after(() => supervisor.cancel('kept', { graceMs: 0 }))
  const owners = async () => (await supervisor.survey()).map(({ owner }) => owner)
  assert.deepEqual(await owners(), ['alive'])
  await bot.kill()
  assert.deepEqual(await owners(), ['dead'])
})
