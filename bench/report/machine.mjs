/** The machine and time of a measurement. */

import { cpus, release } from 'node:os'
import { busyShare } from '../lib/proc.mjs'

/**
 * `facts` for JSON, `text` for readers, `busy`: the share of the CPUs, 0 to 1, that other processes
 * used.
 */
export async function thisMachine() {
  const busy = await busyShare(500)
  const facts = {
    cpu: cpus()[0].model.trim(),
    cores: cpus().length,
    // Without what a distribution or a hosting provider appends.
    kernel: /^[\d.]+/.exec(release())[0],
    node: process.version,
    date: new Date().toISOString().slice(0, 10),
    busyBefore: `${Math.round(busy * 100)} %`,
  }
  const text = `${facts.cpu}, ${facts.cores} cores, Linux ${facts.kernel}, Node ${facts.node}, ${facts.date}`
  return { facts, text, busy }
}
