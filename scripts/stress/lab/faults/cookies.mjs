/**
 * A process that is older than a run and carries the exact cookie of the run, for example a daemon
 * of an earlier run that has called exec. It is not a member of the run. (Processes with almost the
 * same cookie exist from the start, see lib/bystanders.mjs.)
 */

import { readFileSync } from 'node:fs'
import { quietly } from '../witness.mjs'

const VARIABLE = 'SPAWN_OWNED_RUN'

function cookieOf(pid) {
  const environment = quietly(() => readFileSync(`/proc/${pid}/environ`, 'utf8')) ?? ''
  const pair = environment.split('\0').find((it) => it.startsWith(`${VARIABLE}=`))
  return pair?.slice(VARIABLE.length + 1)
}

export const cookieMoves = [
  {
    name: 'lie-in-wait',
    weight: ({ waiting }) => (waiting.length === 0 ? 2 : 0.3),
    draw(draft) {
      const bystander = draft.newBystander()
      draft.waiting.push({ bystander, bots: [...draft.bots] })
      return { bystander }
    },
    describe: ({ bystander }) => `${bystander} starts, and waits for a cookie to carry`,
    play: (stage, { bystander }) => stage.bystanders.addWaiting(bystander, VARIABLE) !== undefined,
  },
  {
    name: 'carry-cookie',
    weight: ({ waiting }) => (waiting.length > 0 ? 3 : 0),
    draw(draft) {
      const { bystander, bots } = draft.waiting[0]
      // A root may be forked before its run is spawned, but not before its bot starts.
      const isYounger = ({ bot }) => !bots.some(({ name }) => name === bot)
      const run = draft.run((it) => !it.isRegistered && !it.isBrief && isYounger(it))
      if (!run) return undefined
      draft.waiting.shift()
      return { carrier: bystander, run: run.name }
    },
    describe: ({ carrier, run }) => `${carrier}, which is older than ${run}, carries its cookie from now on`,
    async play(stage, { carrier, run: runId }) {
      const [waiting, root] = [stage.bystanders.waiting(carrier), stage.run(runId)?.root]
      const cookie = root?.isAlive() ? cookieOf(root.pid) : undefined
      // The kernel counts start times in ticks of 10 ms.
      if (!waiting || !cookie?.includes(runId) || Number(waiting.process.started) >= Number(root.started))
        return false
      return await stage.bystanders.carries(
        carrier,
        cookie,
        `a process that is older than ${runId} and carries its cookie`,
      )
    },
  },
]
