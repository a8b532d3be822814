/**
 * Reads the registry all the time, as another program would: it is always valid, and has every run
 * that is alive.
 */

import { readRegistry } from './witness.mjs'

const READ_EVERY_MS = 4

export class RegistryReads {
  facts = { count: 0, invalid: [] }
  /** The text that a fault has written into the file. */
  vandalism
  #stage
  #timer

  constructor(stage) {
    this.#stage = stage
  }

  begin() {
    this.#timer = setInterval(() => this.#read(), READ_EVERY_MS)
  }

  end() {
    clearInterval(this.#timer)
  }

  #read() {
    const { text: now, invalid, runIds } = readRegistry(this.#stage.registryPath)
    this.facts.count++
    if (invalid && now !== this.vandalism && this.facts.invalid.length < 10) this.facts.invalid.push(invalid)
    for (const run of this.#stage.runs.values()) {
      if (!run.mustBeRecorded || run.registryLost || runIds.has(run.name)) continue
      // Checked after the registry was read: a run that is alive now was alive then.
      if (run.isAlive())
        run.wasMissing(`alive at step ${this.#stage.at}, but not in the registry:\n${run.witness.holders()}`)
    }
  }
}
