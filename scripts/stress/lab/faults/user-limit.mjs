/**
 * The user of the bots may have no more processes (RLIMIT_NPROC): their forks fail, and their threads, while everybody else's do not. Root
 * is exempt, so it takes bots that are somebody else. `limit-user.c` tells every process of the user.
 */

import { execFileSync } from 'node:child_process'
import { limiter } from '../programs.mjs'

const limit = (user, soft) => execFileSync(limiter, [String(user), soft])

export const limitMoves = [
  {
    name: 'no-processes',
    weight: ({ setting }) => (setting.isUnprivileged ? 2 : 0),
    draw: (draft) => draft.begin('no processes'),
    tell: () => 'from here on the user of the bots may have no more processes',
    play(stage) {
      if (stage.user === undefined || stage.cannotFork) return false
      // The trees of the lab leave if they cannot fork.
      const over = stage.during(() => true, 'no forks')
      limit(stage.user, '0')
      stage.noForks()
      stage.remedies.set('no processes', () => {
        limit(stage.user, 'none')
        over()
      })
    },
  },
  {
    name: 'processes-again',
    weight: 1.5,
    draw: (draft) => draft.end('no processes'),
    tell: () => 'the user may have processes again',
    play: (stage) => (stage.cannotFork ? false : stage.remedy('no processes')),
  },
]
