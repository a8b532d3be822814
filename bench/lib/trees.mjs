/** Trees of processes, and ways to end them. */

import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { EXECA, OURS } from './subjects.mjs'
import { Witness } from './witness.mjs'

const PATIENCE_MS = 500

export const TREE_KILL = 'tree-kill'
export const GROUP = 'kill(-pid)'

/** Compiles the program that becomes a tree into the directory. */
export function compileTree(directory) {
  const program = join(directory, 'tree')
  const source = fileURLToPath(new URL('../fixtures/tree.c', import.meta.url))
  execFileSync('cc', ['-O2', '-o', program, source])
  return program
}

// ---- in the measured bot ----------------------------------------------------------------------

let serial = 0

/**
 * Starts a tree of 1 + middle × (1 + leaves) processes, half of them in other sessions, and ends it
 * in the way that this bot measures.
 */
export async function cancelTree(start, { program, directory, middle, leaves, mode = 'stay' }) {
  const how = process.env.BENCH_CANCEL
  const place = join(directory, `witness-${process.pid}-${++serial}`)
  const witness = new Witness(place)
  const child = start(program, [place, mode, String(middle), String(leaves)], {
    stdio: 'ignore',
    detached: how === GROUP,
    ...(how === EXECA && { killDescendants: true }),
  })
  child.once('error', () => {})
  try {
    await witness.complete(1 + middle * (1 + leaves))
    const before = performance.now()
    await end[how](child)
    const told = performance.now()
    const aliveWhenTold = witness.alive().length
    const extinct = await Promise.race([witness.gone, delay(PATIENCE_MS)])
    return {
      ms: Math.max(told, extinct ?? told) - before,
      aliveWhenTold,
      survivors: extinct === undefined ? witness.alive().length : 0,
    }
  } finally {
    for (const pid of witness.alive()) process.kill(pid, 'SIGKILL')
    witness.dispose()
  }
}

const end = {
  [OURS]: (child) => child.cancel(),
  async [TREE_KILL](child) {
    const { default: treeKill } = await import('tree-kill')
    return new Promise((resolve) => treeKill(child.pid, undefined, resolve))
  },
  [GROUP]: (child) => process.kill(-child.pid),
  [EXECA]: (child) => child.killDescendants(),
}
