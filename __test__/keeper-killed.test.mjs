// Without its keeper a run is ended from outside, through its group and its cookie: as `lost`, and nobody else.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'
import { describe, test } from 'node:test'
import { spawnOwned } from 'spawn-owned'
import { program } from './support/fixtures.mjs'
import { hostileTrees, treeNamed } from './support/hostile-trees.mjs'
import { openWitness } from './support/witness.mjs'

const options = { timeout: 20_000 }
const COOKIE = 'SPAWN_OWNED_RUN'

async function standing(t, command, processes) {
  const witness = openWitness(t)
  const [file, args] = command(witness.path)
  const child = spawnOwned(file, args, { stdio: ['pipe', 'ignore', 'ignore'], graceMs: 250 })
  t.after(() => child.stdin.destroy())
  await witness.ready(processes)
  return { child, witness }
}

/** The keeper is the parent of the root. */
const killKeeper = (child) => killHelper(parentOf(child.pid))

/** Killed only if it is what it should be. */
function killHelper(pid) {
  assert.match(basename(readlinkSync(`/proc/${pid}/exe`)), /^spawn-owned-keeper/)
  process.kill(pid, 'SIGKILL')
}

function parentOf(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
}

/** A process that is none of ours, started by plain child_process, in a group of its own. */
async function bystander(t, env) {
  const witness = openWitness(t)
  const child = spawn(program('stays'), [witness.path], { detached: true, stdio: 'ignore', env })
  t.after(() => child.kill('SIGKILL'))
  await witness.ready(1)
  return witness
}

function assertLost(exit, child) {
  assert.equal(exit.reason, 'lost')
  assert.equal(exit.runId, child.runId)
  assert.ok(exit.message.length > 0)
}

describe('a killed keeper loses the run, and nothing of it stays', () => {
  for (const tree of hostileTrees.filter(({ traceable }) => traceable)) {
    test(tree.name, options, async (t) => {
      const { child, witness } = await standing(t, tree.command, tree.ready)
      killKeeper(child)
      const exit = await child.wait()
      assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
      assert.deepEqual(exit.survivors, [])
      assertLost(exit, child)
    })
  }

  test('a process that appended to the cookie, as a nested owner does', options, async (t) => {
    const line = `exec 3>"$2"; ${COOKIE}="$${COOKIE}:nested" setsid "$1" "$2" & read -r _`
    const command = (path) => ['sh', ['-c', line, 'sh', program('stays'), path]]
    const { child, witness } = await standing(t, command, 1)
    killKeeper(child)
    assertLost(await child.wait(), child)
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
  })

  test('a cancel that is under way when the keeper is killed', options, async (t) => {
    const tree = treeNamed('ignores-sigterm')
    const { child, witness } = await standing(t, tree.command, tree.ready)
    const cancelled = child.cancel({ graceMs: 1e8 })
    killKeeper(child)
    const exit = await cancelled
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.deepEqual(exit, await child.wait())
  })
})

test('a process that cleared its environment and left the group is released', options, async (t) => {
  const tree = treeNamed('cleared-environment')
  const { child, witness } = await standing(t, tree.command, tree.ready)
  killKeeper(child)
  assertLost(await child.wait(), child)
  assert.equal(witness.isGone(), false, 'the documented way to keep a daemon')
})

test('bystanders are not touched', options, async (t) => {
  const tree = treeNamed('half-setsid')
  const { child, witness } = await standing(t, tree.command, tree.ready)
  const { runId } = child
  const environments = {
    'no cookie': {},
    'the cookie of another run': { [COOKIE]: 'another-run' },
    'our run id as the beginning of another': { [COOKIE]: `${runId}0` },
    'our run id as the end of another': { [COOKIE]: `other:0${runId}` },
    'our run id in a variable of another name': { [`OLD_${COOKIE}`]: runId, [`${COOKIE}_OLD`]: runId },
    'our cookie inside a value': { NOTE: `${COOKIE}=${runId}`, LINES: `first\n${COOKIE}=${runId}` },
  }
  const bystanders = new Map()
  for (const [who, env] of Object.entries(environments)) bystanders.set(who, await bystander(t, env))

  killKeeper(child)
  assertLost(await child.wait(), child)
  assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
  for (const [who, theirs] of bystanders) assert.equal(theirs.isGone(), false, `ended: a process with ${who}`)
})

test('without the zygote that forked its keeper a run goes on, and so does spawning', options, async (t) => {
  const tree = treeNamed('double-fork-daemon')
  const before = await standing(t, tree.command, tree.ready)
  killHelper(parentOf(parentOf(before.child.pid)))
  const after = await standing(t, tree.command, tree.ready)
  assert.equal(before.witness.isGone(), false)
  for (const { child, witness } of [before, after]) {
    const { reason } = await child.cancel({ graceMs: 1e8 })
    assert.ok(witness.isGone(), `resolved although processes exist:\n${witness.holders()}`)
    assert.equal(reason, 'manual-cancel')
  }
})
