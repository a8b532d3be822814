/**
 * A round while it is played: bots, runs, requests, and observations. `inside.mjs` plays it in its
 * namespace.
 */

import { spawn } from 'node:child_process'
import { chownSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { program } from '../../../__test__/support/fixtures.mjs'
import { mountSmallDisk } from '../../../__test__/support/small-disk.mjs'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { environments } from '../lib/bystanders.mjs'
import { Bot } from './bots.mjs'
import { Bystanders, STANDS_MS } from './bystanders.mjs'
import { endRound } from './curtain.mjs'
import { Lies } from './lies.mjs'
import { BRINGS_RUNS, moveNamed } from './moves.mjs'
import { beginReap } from './reaping.mjs'
import { RegistryReads } from './registry-reads.mjs'
import { StagedRun } from './staged-run.mjs'
import { hasLoaded, measure, ProcessHandle, processes, within } from './witness.mjs'

/** What takes longer counts as never. Far above every promise, on a machine with a load of 10. */
export const PATIENCE_MS = 30_000
const ADDON = 'spawn-owned.node'

export class Stage {
  bots = new Map()
  runs = new Map()
  bystanders = new Bystanders(this)
  orders = []
  claims = []
  reports = []
  /** Orphans that bots report as ended. */
  kills = []
  undelivered = []
  played = []
  /** For each current fault, the function that removes it. */
  remedies = new Map()
  /** Without space or file descriptors, the product may skip the event log. */
  couldNotLog = false
  /** A keeper that cannot record the end of its run retries every 30 s, and exists until then. */
  keepersMayStay = false
  /** Writes were delayed, also those of calls that return only after the write. */
  diskWasSlow = false
  /** How often fork or thread creation was made impossible. */
  forksFailed = 0
  #others = new Set()
  #witnesses = new Map()
  #scope
  #pending = new Set()
  #lasting = new Set()
  #at = 'start of round'

  /**
   * `scope` closes what the stage opens; it stands in for a test context. `user`: an unprivileged
   * user id, or undefined. `pidsLimit`: the cgroup of the round, or undefined.
   */
  constructor({ plan, folder, user, pidsLimit }, scope) {
    this.#scope = scope
    this.plan = plan
    this.folder = folder
    this.user = user
    this.pidsLimit = pidsLimit
    this.registryPath = join(folder, 'data', 'process-registry.json')
    this.registryReads = new RegistryReads(this)
  }

  async open() {
    const { pids, lookAlikes } = this.plan.setting
    this.disk = mountSmallDisk(this.#scope, join(this.folder, 'data'))
    this.give(this.folder, this.disk.directory)
    this.lies = new Lies(this.folder)
    writeFileSync('/proc/sys/kernel/pid_max', String(pids.last))
    // The product never reaps PIDs below 100.
    writeFileSync('/proc/sys/kernel/ns_last_pid', String(pids.first))
    // Now, because creating a FIFO needs a fork, which may be impossible later.
    for (const { do: move, run, bystander } of this.plan.steps) {
      if (BRINGS_RUNS.includes(move)) this.#openWitness(run)
      if (bystander) this.#openWitness(bystander)
    }
    if (lookAlikes)
      for (const [who, env] of Object.entries(environments('run-a'))) {
        this.#openWitness(who)
        await this.bystanders.add(who, { who, env })
      }
    this.registryReads.begin()
  }

  /** The witness of a run or a bystander of the plan. */
  witnessOf(name) {
    return this.#witnesses.get(name)
  }

  #openWitness(name) {
    const witness = openWitness(this.#scope)
    this.give(witness.dir, witness.path)
    this.#witnesses.set(name, witness)
  }

  /** Makes the user of the bots the owner of these files. */
  give(...paths) {
    if (this.user !== undefined) for (const path of paths) chownSync(path, this.user, this.user)
  }

  /** Options for a process of the same user as the bots. */
  get asUser() {
    return this.user === undefined ? {} : { uid: this.user, gid: this.user }
  }

  /** The step that is being played. */
  get at() {
    return this.#at
  }

  async play() {
    for (const step of this.plan.steps) {
      if (step.afterMs) await delay(step.afterMs)
      this.#at = step.number
      const isMoot = (await moveNamed(step.do).play(this, step)) === false
      this.played.push({ number: step.number, isMoot })
      this.#lookAtBystanders()
    }
    this.#at = 'end of round'
    await endRound(this)
    this.#lookAtBystanders()
    this.registryReads.end()
  }

  // ---- bots and runs ----------------------------------------------------------------------------

  /** A bot that is up and not expected to end. */
  bot(name) {
    const bot = this.bots.get(name)
    return bot?.isUp && !bot.expected ? bot : undefined
  }

  run(name) {
    return this.runs.get(name)
  }

  /** Undefined, if no process can be started now. */
  async startBot(name, { isWarm = false } = {}) {
    if (this.cannotFork) return undefined
    const options = { registryPath: this.registryPath, graceMs: 300 }
    const onMessage = (said) => this.#onMessage(name, said)
    const bot = new Bot(name, { options, env: this.lies.env, user: this.asUser, onMessage })
    this.bots.set(name, bot)
    bot.ended.then((how) => {
      bot.how = how
      if (!bot.expected) this.#ownerGoes(bot)
    })
    await within(bot.ready, STANDS_MS)
    if (isWarm)
      await this.order(bot, 'warmUp', [], {
        awaited: true,
        onResult: () => (bot.before = measure(bot.process.pid)),
      })
    return bot
  }

  /** No process can fork, not even the lab. */
  get cannotFork() {
    return this.remedies.has('no forks')
  }

  addRun(name, about) {
    const run = new StagedRun(name, this.witnessOf(name), about)
    // The keeper of this run may have been stopped while it was a spare one.
    run.keeperStopped = this.bots.get(about.bot)?.spareStopped ?? false
    this.runs.set(name, run)
    for (const lasting of this.#lasting) if (lasting.meets(run)) run.mayEnd(lasting.cause)
    return run
  }

  /**
   * A process that the lab starts itself, with the PID `pid` if given. Undefined, if that is not
   * possible.
   */
  async addRegistered(name, { bot, leads, pid, before }) {
    const run = this.addRun(name, { bot, what: 'stays', isKept: true, isRegistered: true })
    before?.()
    const child = spawn(program('stays'), [run.witness.path], {
      stdio: 'ignore',
      detached: leads,
      ...this.asUser,
    })
    child.on('error', () => {})
    // If the fork failed with EAGAIN, Node's `kill` would signal the lab's own process group.
    const hasStarted = child.pid > 0
    if (!hasStarted || (pid !== undefined && child.pid !== pid)) {
      this.runs.delete(name)
      run.witness.release()
      if (hasStarted) child.kill('SIGKILL')
      return undefined
    }
    run.hasBegun(child.pid)
    await this.stands(run, 1)
    return run
  }

  async stands(run, count) {
    // A run that is cancelled or ends before never becomes ready.
    await run.witness.ready(count, run.hasCause ? 300 : STANDS_MS).catch(() => {})
    run.witness.release()
  }

  continueAll() {
    for (const pid of processes().filter((pid) => pid !== process.pid && pid !== 1))
      new ProcessHandle(pid).signal('SIGCONT')
  }

  // ---- actions ----------------------------------------------------------------------------------

  /**
   * Sends a request to a bot. The result is noted when it arrives; the caller waits for it only if
   * it is `awaited`. `onResult(result)` is called as soon as the answer arrives. `refused(isGone)`
   * is called after an error or the end of the bot, and `over()` in any case.
   */
  async order(bot, order, args, { awaited = false, onResult, refused, over } = {}) {
    const note = { bot: bot.name, order, step: this.#at, outcome: 'unanswered' }
    this.orders.push(note)
    const asked = performance.now()
    const answer = new Promise((resolve) => {
      bot.ask(order, args, ({ result, error, isGone, blockedMs }) => {
        // Not measured for a bot that was stopped or writes to a slow disk.
        if (!bot.wasStopped && !this.diskWasSlow)
          Object.assign(note, { blockedMs, tookMs: performance.now() - asked })
        if (error) Object.assign(note, { outcome: 'refused', code: error.code, message: error.message })
        else note.outcome = isGone ? 'bot gone' : 'done'
        if (note.outcome === 'done') onResult?.(result)
        else refused?.(isGone)
        over?.()
        resolve()
      })
    }).then(() => this.#pending.delete(answer))
    this.#pending.add(answer)
    if (awaited && !(await within(answer, bot.process.isStopped() ? 100 : PATIENCE_MS))) note.isLate = true
  }

  async allAnswered() {
    await within(Promise.all(this.#pending), PATIENCE_MS)
  }

  /** Follows a process that is not a bot. Returns the function to call after its end. */
  followOther(child) {
    this.#others.add(child)
    return () => this.#others.delete(child)
  }

  /**
   * From now on forks fail. A Node process that is not up yet may wait for its threads forever.
   * That is a problem of Node, so the lab kills it.
   */
  noForks() {
    this.forksFailed++
    for (const child of this.#others) if (!hasLoaded(child.pid, ADDON)) child.kill('SIGKILL')
  }

  /**
   * Like `order`, for a process that is not a bot. `work` resolves with `{ outcome, code, message
   * }`.
   */
  async outsideOrder(who, order, work, { awaited = false } = {}) {
    const note = { bot: who, order, step: this.#at, outcome: 'unanswered' }
    this.orders.push(note)
    const answer = work.then((how) => Object.assign(note, how)).then(() => this.#pending.delete(answer))
    this.#pending.add(answer)
    if (awaited && !(await within(answer, PATIENCE_MS))) note.isLate = true
  }

  reap(bot, { policy, dryRun }, awaited) {
    const how = beginReap(this, bot.name, { policy, dryRun })
    return this.order(bot, 'reap', [{ policy, dryRun }], { awaited, ...how })
  }

  /**
   * Until the returned function is called, every run for which `meets(run)` is true may end for
   * this cause.
   */
  during(meets, cause) {
    const lasting = { meets, cause }
    this.#lasting.add(lasting)
    this.#lookAtLasting()
    return () => {
      this.#lookAtLasting()
      this.#lasting.delete(lasting)
    }
  }

  #lookAtLasting() {
    for (const { meets, cause } of this.#lasting)
      for (const run of this.runs.values()) if (!run.isKnownToBeOver && meets(run)) run.mayEnd(cause)
  }

  /** The new run ends the other runs of its scope, possibly after a wait. */
  replaceScope(scopeKey, successor) {
    this.during((run) => run.options.scopeKey === scopeKey && run.name !== successor, 'cancel')
  }

  expectEnd(bot, how) {
    bot.expected = how
    this.#ownerGoes(bot)
  }

  #ownerGoes({ name }) {
    for (const run of this.runs.values()) if (run.bot === name && !run.isKept) run.mayEnd('owner gone')
    this.#lookAtLasting()
  }

  // ---- observations -----------------------------------------------------------------------------

  #onMessage(bot, { begun, failed, over, closed, killed, pid, code, exit, bytes }) {
    const run = this.run(begun ?? failed ?? over ?? closed ?? killed)
    if (begun) {
      run.hasBegun(pid)
      run.holds()
      run.isRecorded()
    }
    if (closed) run.hasSaid(bytes)
    if (killed) {
      this.kills.push({ by: bot, run: killed })
      this.#claim(`the orphan:killed of ${bot}`, { runId: killed, reason: 'orphan', survivors: [] })
    }
    if (failed) run.mayEnd(`failed: ${code}`)
    if (over) {
      this.#claim(`wait() of ${bot}`, exit)
      run.hasEnded(bot, exit)
    }
  }

  claimAll(who, exits) {
    for (const exit of exits) this.#claim(who, exit)
  }

  #claim(who, { runId, reason, survivors }) {
    const run = this.run(runId)
    // After a report of the end, the lab need not hold its own end of the FIFO.
    run?.witness.release()
    const isGone = run?.isGone()
    const hasBegun = run?.root !== undefined
    this.claims.push({
      who,
      run: runId,
      hasBegun,
      reason,
      survivors: survivors.length,
      isGone,
      step: this.#at,
    })
  }

  #lookAtBystanders() {
    this.bystanders.look(this.#at)
    for (const run of this.runs.values())
      if ((run.isBystander || run.isRegistered) && run.endedAt === undefined && run.isGone())
        // Noted now, because a later step may give the run a cause.
        Object.assign(run, { endedAt: this.#at, endedUnasked: !run.hasCause })
  }

  /** Removes one fault, if it lasts. */
  async remedy(what) {
    const remedy = this.remedies.get(what)
    this.remedies.delete(what)
    return remedy ? await remedy() : false
  }

  async removeFaults() {
    // First, because removing the others may need forks.
    for (const what of ['no forks', ...this.remedies.keys()]) await this.remedy(what)
  }

  /** What the registry contained until now may be lost. */
  losesRegistry() {
    for (const run of this.runs.values()) run.registryLost = true
  }

  get facts() {
    return {
      runs: [...this.runs.values()].map((run) => ({
        ...run.facts,
        endedAt: run.endedAt,
        endedUnasked: run.endedUnasked,
      })),
      bystanders: this.bystanders.facts,
      bots: [...this.bots.values()].map((bot) => bot.facts),
      orders: this.orders,
      claims: this.claims,
      reports: this.reports,
      kills: this.kills,
      undelivered: this.undelivered,
      reads: this.registryReads.facts,
      played: this.played,
      final: this.final,
    }
  }
}
