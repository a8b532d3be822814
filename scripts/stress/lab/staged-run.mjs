/**
 * A run, as the stage sees it: what was done to it, and what its witness shows. The invariants
 * check its facts.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { commandNamed } from './commands.mjs'
import { isHelper, ProcessHandle } from './witness.mjs'

export class StagedRun {
  root
  keeper
  zygote
  keeperStopped = false
  /** Whether the registry must contain the run while it is alive. */
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

  /** Notes, before it happens, an action that may end the run. */
  mayEnd(cause) {
    if (!this.#causes.includes(cause)) this.#causes.push(cause)
  }

  /** A stopped run writes nothing. */
  mayBeSilent() {
    if (this.options.noOutputTimeoutMs) this.mayEnd('silence')
  }

  get hasCause() {
    return this.#causes.length > 0
  }

  hasBegun(pid) {
    if (pid === undefined) return
    // The registry certainly contains the run only after the event `spawn`: in a scope the run may
    // have to wait.
    this.root ??= new ProcessHandle(pid)
    const keeper = this.root.parent
    if (this.keeper || !keeper || !isHelper(keeper.pid)) return
    this.keeper = keeper
    const zygote = keeper.parent
    if (zygote && isHelper(zygote.pid) && !zygote.isKilled) this.zygote = zygote
    // The keeper was a spare one when its zygote was killed. The new parent may show only after a
    // while.
    else if (keeper.isAlive()) this.loses('zygote')
  }

  /**
   * Unless an unregister request is on its way: a stopped bot later answers both requests at once.
   */
  isRecorded() {
    this.mustBeRecorded = !this.#isLeaving
  }

  isNotRecorded() {
    this.#isLeaving = true
    this.mustBeRecorded = false
  }

  /** The run was alive after a read of the registry that did not contain it. */
  wasMissing(what) {
    this.#unrecorded ??= what
  }

  /** The timeout was extended in time. */
  getsMore(ms) {
    this.#extendedMs += ms
  }

  /** The output was read from its beginning to its end. */
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

  /** From now on it is unknown whether the registry contains the run. */
  mayBeLost() {
    this.registryLost = true
  }

  becomesBystander() {
    this.isBystander = true
  }

  /**
   * A command with a terminal gets no other file descriptor. It holds the witness only after it has
   * opened it. If the lab closed its own end before, it would take the missing holder for the end
   * of the tree.
   */
  get holdsLate() {
    return this.options.pty === true
  }

  /** From here on the run holds its witness itself. */
  holds() {
    if (!this.holdsLate) return this.witness.release()
    this.witness.ready(1).catch(() => {})
  }

  /** False also if the run does not hold its witness yet: then the lab cannot know. */
  isAlive() {
    return this.witness.writeEnd === null && !this.witness.isGone()
  }

  isGone() {
    return this.witness.writeEnd === null && this.witness.isGone()
  }

  /** Waits until no process of the run is left, for at most `ms`. Always returns true. */
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
      isBystander: this.isBystander ?? false,
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
