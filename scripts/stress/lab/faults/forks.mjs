/**
 * Nobody can fork, nor start a thread (EAGAIN), the lab included: all numbers of the namespace are taken, or the pids limit of the cgroup
 * that everybody is in is reached.
 */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The least that the kernel allows; numbers begin at 300 when they come round. */
const NO_NUMBER = 301

const WAYS = {
  numbers: {
    words: 'all numbers are taken',
    isThere: () => true,
    limit: (stage, isOn) =>
      writeFileSync('/proc/sys/kernel/pid_max', String(isOn ? NO_NUMBER : stage.plan.setting.pids.last)),
  },
  cgroup: {
    words: "by its cgroup's pids limit",
    isThere: ({ pidsLimit }) => pidsLimit !== undefined,
    limit: ({ pidsLimit }, isOn) => writeFileSync(join(pidsLimit, 'pids.max'), isOn ? '0' : 'max'),
  },
}

export const forkMoves = [
  {
    name: 'no-forks',
    weight: 1,
    draw: (draft) => draft.begin('no forks') && { way: draft.dice.pick(Object.keys(WAYS)) },
    tell: ({ way }) => `from here on nobody can fork: ${WAYS[way].words}`,
    play(stage, { way }) {
      const { isThere, limit } = WAYS[way]
      if (!isThere(stage)) return false
      // The trees of the lab leave if they cannot fork.
      const over = stage.during(() => true, 'no forks')
      limit(stage, true)
      stage.noForks()
      stage.remedies.set('no forks', () => {
        limit(stage, false)
        over()
      })
    },
  },
  {
    name: 'forks-again',
    weight: 1.5,
    draw: (draft) => draft.end('no forks'),
    tell: () => 'one can fork again',
    play: (stage) => stage.remedy('no forks'),
  },
]
