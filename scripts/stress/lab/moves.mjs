/**
 * All that can happen in a round. Each move knows how it is drawn for a plan, told to people, and played:
 *
 * `draw(draft)` returns the fields of a step, or nothing if there is no occasion; pure. `tell(step)` says it in words; pure.
 * `play(stage, step)` does it, and returns false if there was nobody to do it with.
 */

import { killMoves } from './faults/kill.mjs'
import { stopMoves } from './faults/stop.mjs'
import { botMoves } from './operations/bots.mjs'
import { registryMoves } from './operations/registry.mjs'
import { runMoves } from './operations/runs.mjs'

export const moves = [...botMoves, ...runMoves, ...registryMoves, ...killMoves, ...stopMoves]

const named = new Map(moves.map((move) => [move.name, move]))

export const moveNamed = (name) => named.get(name)
