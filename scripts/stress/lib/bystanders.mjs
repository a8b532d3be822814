/** Processes that look as if they were somebody's run, and are not. They live as long as the loop, each with a witness. */

import { spawn } from 'node:child_process'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { Wrong } from './loop.mjs'

const COOKIE = 'SPAWN_OWNED_RUN'

/** What a process may carry without being part of this run. */
export function environments(runId) {
  return {
    'no cookie': {},
    'the cookie of another run': { [COOKIE]: 'another-run' },
    'its id as the beginning of another': { [COOKIE]: `${runId}0` },
    'its id as the end of another': { [COOKIE]: `other:0${runId}` },
    'its id in a variable of another name': { [`OLD_${COOKIE}`]: runId, [`${COOKIE}_OLD`]: runId },
    'its cookie inside a value': { NOTE: `${COOKIE}=${runId}`, LINES: `first\n${COOKIE}=${runId}` },
  }
}

export class Bystanders {
  #witnesses = new Map()

  /** Beside runs with this id; and two that are ours, in the same registry. */
  constructor(scope, runId, supervisor) {
    for (const [who, env] of Object.entries(environments(runId))) {
      this.#add(scope, `a process with ${who}`, (stdio) => spawn('cat', { env, stdio, detached: true }))
    }
    this.#add(scope, 'a run of a bot that lives', (stdio) => supervisor.spawnOwned('cat', { stdio }))
    this.#add(scope, 'a process that a bot has registered that lives', (stdio) => {
      const child = spawn('cat', { stdio, detached: true })
      supervisor.registerProcess({ pid: child.pid })
      return child
    })
  }

  /** They stay until their stdin ends: with this process at the latest. */
  #add(scope, who, start) {
    const witness = openWitness(scope)
    const child = start(['pipe', 'ignore', 'ignore', witness.writeEnd])
    scope.after(() => child.stdin.destroy())
    witness.release()
    this.#witnesses.set(who, witness)
  }

  mustLive(loop, when) {
    for (const [who, witness] of this.#witnesses) {
      if (!witness.isGone()) continue
      this.#witnesses.delete(who)
      loop.count('bystanders')
      loop.fail(new Wrong(`${who} was ended: ${when}`))
    }
  }
}
