/**
 * No process, including the lab, can fork or start a thread (EAGAIN): all PIDs of the namespace are
 * in use, or the cgroup of the round has reached its pids limit.
 */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The lowest pid_max that the kernel allows. After a wrap, PIDs start at 300. */
const NO_FREE_PID = 301

const WAYS = {
  numbers: {
    words: 'all PIDs are in use',
    isThere: () => true,
    limit: (stage, isOn) =>
      writeFileSync('/proc/sys/kernel/pid_max', String(isOn ? NO_FREE_PID : stage.plan.setting.pids.last)),
  },
  cgroup: {
    words: 'the pids limit of the cgroup is reached',
    isThere: ({ pidsLimit }) => pidsLimit !== undefined,
    limit: ({ pidsLimit }, isOn) => writeFileSync(join(pidsLimit, 'pids.max'), isOn ? '0' : 'max'),
  },
}

export const forkMoves = [
  {
    name: 'no-forks',
    weight: 1,
    draw: (draft) => draft.begin('no forks') && { way: draft.dice.pick(Object.keys(WAYS)) },
    describe: ({ way }) => `from now on no process can fork: ${WAYS[way].words}`,
    play(stage, { way }) {
      const { isThere, limit } = WAYS[way]
      if (!isThere(stage)) return false
      // The trees of the lab exit if they cannot fork.
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
    describe: () => 'processes can fork again',
    play: (stage) => stage.remedy('no forks'),
  },
]
