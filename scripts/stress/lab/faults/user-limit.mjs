/**
 * The user of the bots can have no more processes (RLIMIT_NPROC): fork and thread creation fail for
 * this user only. Root is exempt, so the bots must be an unprivileged user. `limit-user.c` limits
 * every process of the user.
 */

import { execFileSync } from 'node:child_process'
import { limiter } from '../programs.mjs'

const limit = (user, soft) => execFileSync(limiter, [String(user), soft])

export const limitMoves = [
  {
    name: 'no-processes',
    weight: ({ setting }) => (setting.isUnprivileged ? 2 : 0),
    draw: (draft) => draft.begin('no processes'),
    describe: () => 'from now on the user of the bots can have no more processes',
    play(stage) {
      if (stage.user === undefined || stage.cannotFork) return false
      // The trees of the lab exit if they cannot fork.
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
    describe: () => 'the user can have more processes again',
    play: (stage) => (stage.cannotFork ? false : stage.remedy('no processes')),
  },
]
