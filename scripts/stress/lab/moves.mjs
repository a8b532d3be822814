/**
 * All moves of a round. A move can be drawn for a plan, described, and played.
 *
 * `draw(draft)` returns the fields of a step, or undefined if the move makes no sense now; pure.
 * `describe(step)` returns the step in words; pure. `play(stage, step)` does it. It returns false if
 * the bot, run or resource that it needs does not exist.
 */

import { clockMoves } from './faults/clock.mjs'
import { cookieMoves } from './faults/cookies.mjs'
import { descriptorMoves } from './faults/descriptors.mjs'
import { diskMoves } from './faults/disk.mjs'
import { environmentMoves } from './faults/environment.mjs'
import { forkMoves } from './faults/forks.mjs'
import { killMoves } from './faults/kill.mjs'
import { lockMoves } from './faults/lock.mjs'
import { passedStdoutMoves } from './faults/passed-stdout.mjs'
import { pidReuseMoves } from './faults/pid-reuse.mjs'
import { registryFaults } from './faults/registry.mjs'
import { slowDiskMoves } from './faults/slow-disk.mjs'
import { stopMoves } from './faults/stop.mjs'
import { limitMoves } from './faults/user-limit.mjs'
import { botMoves } from './operations/bots.mjs'
import { commandLineMoves } from './operations/command-line.mjs'
import { deadlineMoves } from './operations/deadlines.mjs'
import { handleMoves } from './operations/handles.mjs'
import { pauseMoves } from './operations/pause.mjs'
import { registryMoves } from './operations/registry.mjs'
import { runMoves } from './operations/runs.mjs'
import { watchMoves } from './operations/watch.mjs'

const operations = [
  ...botMoves,
  ...runMoves,
  ...pauseMoves,
  ...deadlineMoves,
  ...registryMoves,
  ...watchMoves,
  ...commandLineMoves,
  ...handleMoves,
]
const faults = [
  ...killMoves,
  ...stopMoves,
  ...pidReuseMoves,
  ...registryFaults,
  ...diskMoves,
  ...slowDiskMoves,
  ...lockMoves,
  ...descriptorMoves,
  ...forkMoves,
  ...limitMoves,
  ...clockMoves,
  ...cookieMoves,
  ...environmentMoves,
  ...passedStdoutMoves,
]

export const moves = [...operations, ...faults]

/** Moves that add the run which they name. */
export const BRINGS_RUNS = ['spawn', 'register', 'start-child', 'register-at']

const named = new Map(moves.map((move) => [move.name, move]))

export const moveNamed = (name) => named.get(name)
