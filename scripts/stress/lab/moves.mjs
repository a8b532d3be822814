/**
 * All that can happen in a round. Each move knows how it is drawn for a plan, told to people, and played:
 *
 * `draw(draft)` returns the fields of a step, or nothing if there is no occasion; pure. `tell(step)` says it in words; pure.
 * `play(stage, step)` does it, and returns false if there was nobody to do it with.
 */

import { clockMoves } from './faults/clock.mjs'
import { descriptorMoves } from './faults/descriptors.mjs'
import { diskMoves } from './faults/disk.mjs'
import { forkMoves } from './faults/forks.mjs'
import { killMoves } from './faults/kill.mjs'
import { lockMoves } from './faults/lock.mjs'
import { numberMoves } from './faults/number.mjs'
import { registryFaults } from './faults/registry.mjs'
import { slowDiskMoves } from './faults/slow-disk.mjs'
import { stopMoves } from './faults/stop.mjs'
import { limitMoves } from './faults/user-limit.mjs'
import { botMoves } from './operations/bots.mjs'
import { commandLineMoves } from './operations/command-line.mjs'
import { deadlineMoves } from './operations/deadlines.mjs'
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
]
const faults = [
  ...killMoves,
  ...stopMoves,
  ...numberMoves,
  ...registryFaults,
  ...diskMoves,
  ...slowDiskMoves,
  ...lockMoves,
  ...descriptorMoves,
  ...forkMoves,
  ...limitMoves,
  ...clockMoves,
]

export const moves = [...operations, ...faults]

const named = new Map(moves.map((move) => [move.name, move]))

export const moveNamed = (name) => named.get(name)
