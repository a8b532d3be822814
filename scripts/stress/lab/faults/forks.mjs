/**
 * Nobody can fork: all numbers of the namespace are taken, as when its pids limit is reached (EAGAIN). A limit of processes per user
 * would not hold for root.
 */

import { writeFileSync } from 'node:fs'

/** The least that the kernel allows; numbers begin at 300 when they come round. */
const NONE = 301
const limit = (number) => writeFileSync('/proc/sys/kernel/pid_max', String(number))

export const forkMoves = [
  {
    name: 'no-forks',
    weight: 0.7,
    draw: (draft) => draft.begin('no forks'),
    tell: () => 'from here on nobody can fork',
    play(stage) {
      // The trees of the lab leave if they cannot fork.
      const over = stage.during(() => true, 'no forks')
      limit(NONE)
      stage.remedies.set('no forks', () => {
        limit(stage.plan.setting.pids.last)
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
