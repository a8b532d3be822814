/** A run as the stage has it: what was done to it, and what its witness says. Its facts are what the invariants judge. */

import { setTimeout as delay } from 'node:timers/promises'
import { commandNamed } from './commands.mjs'
import { isHelper, ProcessHandle } from './witness.mjs'

export class StagedRun {
  root
  keeper
  zygote
  keeperStopped = false
  /** From when on, and until when, the registry must have it while it lives. */
  mustBeRecorded = false
  #causes = []
  #exits = []
  #lost = new Set()
  #unrecorded
  #isLeaving = false
  #extendedMs = 0
  #output

  constructor(name, witness, { bot, what, options = {}, isKept = false, isRegistered = false }) {
    Object.assign(this, { name, witness, bot, what, options, isKept, isRegistered })
  }

  /** Something was done that may end it. Noted before it is done. */
  mayEnd(cause) {
    if (!this.#causes.includes(cause)) this.#causes.push(cause)
  }

  /** One that is stopped says nothing. */
  mayBeSilent() {
    if (this.options.noOutputTimeoutMs) this.mayEnd('silence')
  }

  get hasCause() {
    return this.#causes.length > 0
  }

  hasBegun(pid) {
    if (pid === undefined) return
    // `spawn` follows, and only then it is certain to be on record: in a scope it may have to wait.
    this.root ??= new ProcessHandle(pid)
    const keeper = this.root.parent
    if (this.keeper || !keeper || !isHelper(keeper.pid)) return
    this.keeper = keeper
    const zygote = keeper.parent
    if (zygote && isHelper(zygote.pid) && !zygote.isDoomed) this.zygote = zygote
    // One that had waited for its use when its zygote was killed, which may take a while to be seen.
    else if (keeper.isAlive()) this.loses('zygote')
  }

  /** Unless it is to be taken off the record: a bot that was stopped answers late, and to both at once. */
  isRecorded() {
    this.mustBeRecorded = !this.#isLeaving
  }

  isNotRecorded() {
    this.#isLeaving = true
    this.mustBeRecorded = false
  }

  /** It was alive when the registry, read after that, did not have it. */
  wasMissing(what) {
    this.#unrecorded ??= what
  }

  /** A deadline was moved, and in time. */
  getsMore(ms) {
    this.#extendedMs += ms
  }

  /** Its outputs were read from the beginning, and are at their end. */
  hasSaid(bytes) {
    this.#output = bytes
  }

  loses(helper) {
    this.#lost.add(helper)
    if (helper === 'keeper') this.mayEnd('keeper killed')
  }

  belongsTo(bot) {
    this.bot = bot
  }

  get isKnownToBeOver() {
    return this.#exits.length > 0
  }

  hasEnded(by, exit) {
    this.#exits.push({ by, ...exit })
    this.mustBeRecorded = false
  }

  /** Nobody can say any more what the registry knows of it. */
  mayBeLost() {
    this.registryLost = true
  }

  becomesStranger() {
    this.isStranger = true
  }

  /**
   * With a terminal, the command gets no other descriptor: it holds the witness when it has opened it, and not before it stands. Whoever
   * lets go of it earlier takes the end of nobody for the end of a tree.
   */
  get holdsLate() {
    return this.options.pty === true
  }

  /** From here on it holds its witness itself. */
  holds() {
    if (!this.holdsLate) return this.witness.release()
    this.witness.ready(1).catch(() => {})
  }

  /** Seen to be there; of one that does not hold its witness yet nobody can say. */
  isAlive() {
    return this.witness.writeEnd === null && !this.witness.isGone()
  }

  isGone() {
    return this.witness.writeEnd === null && this.witness.isGone()
  }

  /** Returns true when nothing of it is left, and also after so many ms. */
  async isOver(ms) {
    const giveUpAt = performance.now() + ms
    while (!this.isGone() && performance.now() < giveUpAt) await delay(5)
    return true
  }

  get facts() {
    const { traceable = true, left = 0, says } = commandNamed(this.what) ?? {}
    return {
      name: this.name,
      bot: this.bot,
      what: this.what,
      options: this.options,
      isKept: this.isKept,
      isRegistered: this.isRegistered,
      isStranger: this.isStranger ?? false,
      hasBegun: this.root !== undefined,
      traceable,
      hasEscapees: left > 0,
      causes: this.#causes,
      lost: [...this.#lost],
      keeperStopped: this.keeperStopped,
      extendedMs: this.#extendedMs,
      says,
      said: this.#output,
      registryLost: this.registryLost ?? false,
      exits: this.#exits,
      unrecorded: this.#unrecorded,
    }
  }
}
