// Runs the bots of a project, and judges what they report.
import assert from 'node:assert/strict'
import { chmodSync, statSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import { openWitness, READY } from '../../__test__/support/witness.mjs'
import { thisTarget } from '../targets/list.mjs'
import { bots, inProject } from './project.mjs'

/**
 * Runs both bots. An independent witness shows that their trees existed, and that no process is
 * left.
 */
export async function runBots(project, { files = bots, node = [process.execPath], uid, registry } = {}) {
  let result
  for (const file of files) {
    const closing = []
    const witness = openWitness({ after: (close) => closing.push(close) })
    try {
      chmodSync(witness.dir, 0o755)
      chmodSync(witness.path, 0o666)
      const env = { WITNESS: witness.path, ...(registry && { SPAWN_OWNED_REGISTRY: registry }) }
      const [command, ...args] = [...node, file]
      result = JSON.parse(await inProject(project, command, args, { uid, env }))
      witness.release()
      assert.ok(witness.isGone(), `processes are left:\n${witness.holders()}`)
      assert.equal(witness.count(READY), 2)
    } finally {
      for (const close of closing) close()
    }
    judgeBot(project, result)
  }
  return result
}

function judgeBot(project, { addon, uid, ...told }) {
  assert.deepEqual(told, {
    ...{
      known: [true],
      reason: 'manual-cancel',
      survivors: [],
      exitCode: 7,
      heard: 'heard\n',
      onTerminal: 5,
    },
    ofAgent: 3,
    withoutSdk: 'ERR_OWNED_PEER_MISSING',
  })
  assert.ok(addon.startsWith(project + sep), `${addon} is not the project's`)
  const keeper = join(dirname(addon), thisTarget().files[1])
  assert.equal(statSync(keeper).mode & 0o111, 0o111, `${keeper} is not executable`)
}
