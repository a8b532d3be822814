// A run whose keeper is killed ends as `lost`. The zygote ends it, because it adopts the whole
// tree. If the zygote is dead too, the bot ends the run through its process group and its cookie.
// No other process is signalled.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { spawnOwned } from 'spawn-owned'
import { isHelper, statOf, until } from '../support/bots.mjs'
import { hostileTrees, treeNamed } from '../support/hostile-trees.mjs'
import { assert, describe, openWitness, options, program, test } from '../support/prelude.mjs'
import { linuxOnly, NO_KEEPER, NO_SETSID, NO_SUBREAPER, posixOnly } from '../support/system.mjs'

/** The zygote can end only processes that it adopts, which needs a child subreaper. */
const withSubreaper = linuxOnly(NO_SUBREAPER, options)
const withKeeper = posixOnly(NO_KEEPER, options)
const COOKIE = 'SPAWN_OWNED_RUN'

async function standing(t, command, processes) {
  const witness = openWitness(t)
  const [file, args] = command(witness.path)
  const child = spawnOwned(file, args, { stdio: ['pipe', 'ignore', 'ignore'], graceMs: 250 })
  t.after(() => child.stdin.destroy())
  await witness.ready(processes)
  return { child, witness }
}

/** Kills the parent of the root process, if it really is a keeper. */
function killKeeper(child) {
  const keeper = parentOf(child.pid)
  assert.ok(isHelper(keeper), 'the parent of the root is not a keeper')
  process.kill(keeper, 'SIGKILL')
}

/**
 * Kills the keeper's parent if it is the zygote. It is not if an earlier zygote was killed and the
 * keeper comes from the stock that it left.
 */
function killZygote(child) {
  const zygote = parentOf(parentOf(child.pid))
  if (isHelper(zygote)) process.kill(zygote, 'SIGKILL')
}

/** Kills the zygote before the keeper, because the zygote adopts what a killed keeper leaves. */
function killZygoteAndKeeper(child) {
  killZygote(child)
  killKeeper(child)
}

const parentOf = (pid) => statOf(pid).parent

/** A process of plain child_process in its own process group. It is not a member of any run. */
async function bystander(t, env) {
  const witness = openWitness(t)
  const child = spawn(program('stays'), [witness.path], { detached: true, stdio: 'ignore', env })
  t.after(() => child.kill('SIGKILL'))
  await witness.ready(1)
  return witness
}

function assertLost(exit, child, witness) {
  assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
  assert.equal(exit.reason, 'lost')
  assert.equal(exit.runId, child.runId)
  assert.deepEqual(exit.survivors, [])
}

describe('after its keeper is killed, a run is lost and no process is left of', () => {
  for (const tree of hostileTrees) {
    test(tree.name, withSubreaper, async (t) => {
      const { child, witness } = await standing(t, tree.command, tree.ready)
      killKeeper(child)
      assertLost(await child.wait(), child, witness)
    })
  }
})

for (const [what, kill] of Object.entries({ killKeeper, killZygoteAndKeeper })) {
  test(`bystanders are not signalled after ${what}`, withSubreaper, async (t) => {
    const tree = treeNamed('half-setsid')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    const bystanders = new Map()
    for (const [who, env] of Object.entries(environments(child.runId))) {
      bystanders.set(who, await bystander(t, env))
    }
    kill(child)
    assertLost(await child.wait(), child, witness)
    for (const [who, otherWitness] of bystanders)
      assert.equal(otherWitness.isGone(), false, `a process with ${who} was ended`)
  })

  test(`a cancel with a long grace ends early after ${what}`, withSubreaper, async (t) => {
    const tree = treeNamed('ignores-sigterm')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    const cancelled = child.cancel({ graceMs: 1e8 })
    kill(child)
    const exit = await cancelled
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.deepEqual(exit, await child.wait())
  })
}

/** Environments that do not make a process a member of the run. */
function environments(runId) {
  return {
    'no cookie': {},
    'the cookie of another run': { [COOKIE]: 'another-run' },
    'our run id as the beginning of another': { [COOKIE]: `${runId}0` },
    'our run id as the end of another': { [COOKIE]: `other:0${runId}` },
    'our run id, as an older version wrote it': { [COOKIE]: `other:${runId}` },
    'our run id and another key': { [COOKIE]: `${runId}:~${'0'.repeat(32)}` },
    'our run id in a variable of another name': { [`OLD_${COOKIE}`]: runId, [`${COOKIE}_OLD`]: runId },
    'our cookie inside a value': { NOTE: `${COOKIE}=${runId}`, LINES: `first\n${COOKIE}=${runId}` },
  }
}

describe('after keeper and zygote were killed together, a run is lost and its traceable members end:', () => {
  for (const tree of hostileTrees.filter(({ traceable }) => traceable)) {
    test(tree.name, withKeeper, async (t) => {
      const { child, witness } = await standing(t, tree.command, tree.ready)
      killZygoteAndKeeper(child)
      assertLost(await child.wait(), child, witness)
    })
  }

  test(
    'a process that appended to the cookie, as a nested bot does',
    linuxOnly(NO_SETSID, options),
    async (t) => {
      const line = `exec 3>"$2"; ${COOKIE}="$${COOKIE}:nested" setsid "$1" "$2" & read -r _`
      const command = (path) => ['sh', ['-c', line, 'sh', program('stays'), path]]
      const { child, witness } = await standing(t, command, 1)
      killZygoteAndKeeper(child)
      assertLost(await child.wait(), child, witness)
    },
  )

  test('but a process that cleared its environment and left the group lives on', withSubreaper, async (t) => {
    const tree = treeNamed('cleared-environment')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    killZygoteAndKeeper(child)
    const { reason } = await child.wait()
    assert.equal(reason, 'lost')
    assert.equal(witness.isGone(), false, 'nothing proves that it is a member, so it must not be signalled')
  })
})

test('the bot reaps a killed zygote at once, and no other child', withSubreaper, async (t) => {
  const tree = treeNamed('double-fork-daemon')
  const { child, witness } = await standing(t, tree.command, tree.ready)
  const zygote = parentOf(parentOf(child.pid))
  assert.ok(isHelper(zygote), 'the parent of the keeper is not a zygote')
  const own = spawn('true')
  const ended = once(own, 'exit')
  process.kill(zygote, 'SIGKILL')
  await until(() => !existsSync(`/proc/${zygote}`), 'the zygote is reaped')
  assert.deepEqual(await ended, [0, null], 'Node reaps the other children of the bot')
  assert.equal(witness.isGone(), false)
  assert.equal((await child.cancel()).reason, 'manual-cancel')
})

test('a run and further spawns go on after the zygote is killed', withKeeper, async (t) => {
  const tree = treeNamed('double-fork-daemon')
  const before = await standing(t, tree.command, tree.ready)
  killZygote(before.child)
  const after = await standing(t, tree.command, tree.ready)
  assert.equal(before.witness.isGone(), false)
  for (const { child, witness } of [before, after]) {
    const { reason } = await child.cancel({ graceMs: 1e8 })
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.equal(reason, 'manual-cancel')
  }
})
