// A run whose keeper is killed ends as `lost`: by the zygote, to which the whole tree comes, or, if that is dead too, from
// outside through its group and its cookie. And nobody else is touched.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { describe, test } from 'node:test'
import { spawnOwned } from 'spawn-owned'
import { isHelper, statOf, until } from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { hostileTrees, treeNamed } from './support/hostile-trees.mjs'
import { linuxOnly, NO_KEEPER, NO_SETSID, NO_SUBREAPER, posixOnly } from './support/system.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 120_000 }
/** What the zygote does for a tree, it does for those that come to it. */
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

/** The keeper is the parent of the root; killed only if it is what it should be. */
function killKeeper(child) {
  const keeper = parentOf(child.pid)
  assert.ok(isHelper(keeper), 'the parent of the root is no keeper')
  process.kill(keeper, 'SIGKILL')
}

/** The zygote is the keeper's parent, unless it was killed before and the keeper comes from the stock it left. */
function killZygote(child) {
  const zygote = parentOf(parentOf(child.pid))
  if (isHelper(zygote)) process.kill(zygote, 'SIGKILL')
}

/** The zygote first: it gets what a killed keeper leaves behind. */
function killZygoteAndKeeper(child) {
  killZygote(child)
  killKeeper(child)
}

const parentOf = (pid) => statOf(pid).parent

/** A process that is none of ours, started by plain child_process, in a group of its own. */
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

describe('a killed keeper loses the run, and nothing stays of', () => {
  for (const tree of hostileTrees) {
    test(tree.name, withSubreaper, async (t) => {
      const { child, witness } = await standing(t, tree.command, tree.ready)
      killKeeper(child)
      assertLost(await child.wait(), child, witness)
    })
  }
})

for (const [what, kill] of Object.entries({ killKeeper, killZygoteAndKeeper })) {
  test(`bystanders are not touched: ${what}`, withSubreaper, async (t) => {
    const tree = treeNamed('half-setsid')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    const bystanders = new Map()
    for (const [who, env] of Object.entries(environments(child.runId))) {
      bystanders.set(who, await bystander(t, env))
    }
    kill(child)
    assertLost(await child.wait(), child, witness)
    for (const [who, theirs] of bystanders)
      assert.equal(theirs.isGone(), false, `ended: a process with ${who}`)
  })

  test(`a patient cancel does not outlast: ${what}`, withSubreaper, async (t) => {
    const tree = treeNamed('ignores-sigterm')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    const cancelled = child.cancel({ graceMs: 1e8 })
    kill(child)
    const exit = await cancelled
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.deepEqual(exit, await child.wait())
  })
}

/** What a process may carry without being ours. */
function environments(runId) {
  return {
    'no cookie': {},
    'the cookie of another run': { [COOKIE]: 'another-run' },
    'our run id as the beginning of another': { [COOKIE]: `${runId}0` },
    'our run id as the end of another': { [COOKIE]: `other:0${runId}` },
    'our run id in a variable of another name': { [`OLD_${COOKIE}`]: runId, [`${COOKIE}_OLD`]: runId },
    'our cookie inside a value': { NOTE: `${COOKIE}=${runId}`, LINES: `first\n${COOKIE}=${runId}` },
  }
}

describe('killed together with its zygote it takes along what kept the group or the cookie:', () => {
  for (const tree of hostileTrees.filter(({ traceable }) => traceable)) {
    test(tree.name, withKeeper, async (t) => {
      const { child, witness } = await standing(t, tree.command, tree.ready)
      killZygoteAndKeeper(child)
      assertLost(await child.wait(), child, witness)
    })
  }

  test(
    'a process that appended to the cookie, as a nested owner does',
    linuxOnly(NO_SETSID, options),
    async (t) => {
      const line = `exec 3>"$2"; ${COOKIE}="$${COOKIE}:nested" setsid "$1" "$2" & read -r _`
      const command = (path) => ['sh', ['-c', line, 'sh', program('stays'), path]]
      const { child, witness } = await standing(t, command, 1)
      killZygoteAndKeeper(child)
      assertLost(await child.wait(), child, witness)
    },
  )

  test('but not a process that cleared its environment and left the group', withSubreaper, async (t) => {
    const tree = treeNamed('cleared-environment')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    killZygoteAndKeeper(child)
    const { reason } = await child.wait()
    assert.equal(reason, 'lost')
    assert.equal(witness.isGone(), false, 'nothing proves that it is ours, so it must not be touched')
  })
})

test('a killed zygote is waited for at once, and nobody else is', withSubreaper, async (t) => {
  const tree = treeNamed('double-fork-daemon')
  const { child, witness } = await standing(t, tree.command, tree.ready)
  const zygote = parentOf(parentOf(child.pid))
  assert.ok(isHelper(zygote), 'the parent of the keeper is no zygote')
  const own = spawn('true')
  const ended = once(own, 'exit')
  process.kill(zygote, 'SIGKILL')
  await until(() => !existsSync(`/proc/${zygote}`), 'it is no zombie any more')
  assert.deepEqual(await ended, [0, null], 'a child of the bot’s own is its own')
  assert.equal(witness.isGone(), false)
  assert.equal((await child.cancel()).reason, 'manual-cancel')
})

test('without its zygote a run goes on, and so does spawning', withKeeper, async (t) => {
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
