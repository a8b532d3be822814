/**
 * Processes that look like members of a run, and are not. They live as long as the loop, each with
 * a witness.
 */

import { spawn } from 'node:child_process'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { Wrong } from './loop.mjs'

const COOKIE = 'SPAWN_OWNED_RUN'

/** Environments that do not make a process a member of this run. */
export function environments(runId) {
  return {
    'no cookie': {},
    'the cookie of another run': { [COOKIE]: 'another-run' },
    'its id, and no key': { [COOKIE]: runId },
    'its id, and the key of an earlier run': { [COOKIE]: `${runId}:~${'0123456789abcdef'.repeat(2)}` },
    'its id as the beginning of another': { [COOKIE]: `${runId}0` },
    'its id as the end of another': { [COOKIE]: `other:0${runId}` },
    'its id in a variable of another name': { [`OLD_${COOKIE}`]: runId, [`${COOKIE}_OLD`]: runId },
    'its cookie inside a value': { NOTE: `${COOKIE}=${runId}`, LINES: `first\n${COOKIE}=${runId}` },
  }
}

export class Bystanders {
  #witnesses = new Map()

  /**
   * Bystanders of the runs with this id, and two processes of the live supervisor, in the same
   * registry.
   */
  constructor(scope, runId, supervisor) {
    for (const [who, env] of Object.entries(environments(runId))) {
      this.#add(scope, `a process with ${who}`, (stdio) => spawn('cat', { env, stdio, detached: true }))
    }
    this.#add(scope, 'a run of a live bot', (stdio) => supervisor.spawnOwned('cat', { stdio }))
    this.#add(scope, 'a process that a live bot has registered', (stdio) => {
      const child = spawn('cat', { stdio, detached: true })
      supervisor.registerProcess({ pid: child.pid })
      return child
    })
  }

  /** A bystander exits at the end of its stdin: with this process at the latest. */
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
