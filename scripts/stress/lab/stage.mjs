/** A round as it is played: who is there, what is done, what is heard and seen. `inside.mjs` plays it in its namespace. */

import { spawn } from 'node:child_process'
import { chownSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { program } from '../../../__test__/support/fixtures.mjs'
import { mountSmallDisk } from '../../../__test__/support/small-disk.mjs'
import { openWitness } from '../../../__test__/support/witness.mjs'
import { environments } from '../lib/bystanders.mjs'
import { Bot } from './bots.mjs'
import { lowerCurtain } from './curtain.mjs'
import { Lies } from './lies.mjs'
import { moveNamed } from './moves.mjs'
import { beginReap } from './reaping.mjs'
import { StagedRun } from './staged-run.mjs'
import { hasLoaded, measure, ProcessHandle, processes, readRegistry, within } from './witness.mjs'

/** Whatever takes longer than this is taken for never. Far beyond any promise, on a machine with a load of 10. */
export const PATIENCE_MS = 30_000
const STANDS_MS = 10_000
const READ_EVERY_MS = 4
const ADDON = 'spawn-owned.node'

export class Stage {
  bots = new Map()
  runs = new Map()
  strangers = []
  orders = []
  claims = []
  reports = []
  /** What orphans bots have told that they have ended, and what did not arrive, in words. */
  kills = []
  undelivered = []
  reads = { count: 0, invalid: [] }
  played = []
  /** What puts right again what a fault has put wrong. */
  remedies = new Map()
  /** The event log is the first to be given up when there is no space, or no descriptor. */
  couldNotLog = false
  /** A keeper that cannot write down how its run has ended tries again every 30 s, and stays until then. */
  keepersMayStay = false
  /** How often anybody was kept from forking, or from starting a thread. */
  forksFailed = 0
  #others = new Set()
  #witnesses = new Map()
  #scope
  #pending = new Set()
  #lasting = new Set()
  #at = 'the opening'

  /**
   * What is opened is closed with `scope`, which stands in for a test. `user`: the number of one without privileges, if one is to be had;
   * `pidsLimit`: the cgroup that everybody is in, likewise.
   */
  constructor({ plan, folder, user, pidsLimit }, scope) {
    this.#scope = scope
    this.plan = plan
    this.folder = folder
    this.user = user
    this.pidsLimit = pidsLimit
    this.registryPath = join(folder, 'data', 'process-registry.json')
  }

  async open() {
    const { pids, lookAlikes } = this.plan.setting
    this.disk = mountSmallDisk(this.#scope, join(this.folder, 'data'))
    this.give(this.folder, this.disk.directory)
    this.lies = new Lies(this.folder)
    writeFileSync('/proc/sys/kernel/pid_max', String(pids.last))
    // Numbers below 100 are never reaped.
    writeFileSync('/proc/sys/kernel/ns_last_pid', String(pids.first))
    // Now: to make one takes a fork, which may be impossible later.
    for (const { do: move, run, stranger } of this.plan.steps) {
      if (move === 'spawn' || move === 'register') this.#openWitness(run)
      if (stranger) this.#openWitness(stranger)
    }
    if (lookAlikes)
      for (const [who, env] of Object.entries(environments('run-a'))) {
        this.#openWitness(who)
        await this.addStranger(who, { who, env })
      }
    this.reader = setInterval(() => this.#read(), READ_EVERY_MS)
  }

  #openWitness(name) {
    const witness = openWitness(this.#scope)
    this.give(witness.dir, witness.path)
    this.#witnesses.set(name, witness)
  }

  /** To the user of the bots. */
  give(...paths) {
    if (this.user !== undefined) for (const path of paths) chownSync(path, this.user, this.user)
  }

  /** Whoever is started with this is of the same user as the bots. */
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
      this.#lookAtStrangers()
    }
    this.#at = 'the curtain'
    await lowerCurtain(this)
    this.#lookAtStrangers()
    clearInterval(this.reader)
  }

  // ---- people ---------------------------------------------------------------------------------------------------------

  /** One that is up and not about to go. */
  bot(name) {
    const bot = this.bots.get(name)
    return bot?.isUp && !bot.expected ? bot : undefined
  }

  run(name) {
    return this.runs.get(name)
  }

  /** Nothing, if nobody can be started now. */
  async startBot(name, { isWarm = false } = {}) {
    if (this.cannotFork) return undefined
    const options = { registryPath: this.registryPath, graceMs: 300 }
    const hear = (said) => this.#hear(name, said)
    const bot = new Bot(name, { options, env: this.lies.env, user: this.asUser, hear })
    this.bots.set(name, bot)
    bot.ended.then((how) => {
      bot.how = how
      if (!bot.expected) this.#ownerGoes(bot)
    })
    await within(bot.ready, STANDS_MS)
    if (isWarm)
      await this.order(bot, 'warmUp', [], {
        awaited: true,
        heard: () => (bot.before = measure(bot.process.pid)),
      })
    return bot
  }

  /** Nobody can, the lab itself included. */
  get cannotFork() {
    return this.remedies.has('no forks')
  }

  addRun(name, about) {
    const run = new StagedRun(name, this.#witnesses.get(name), about)
    this.runs.set(name, run)
    for (const lasting of this.#lasting) if (lasting.meets(run)) run.mayEnd(lasting.cause)
    return run
  }

  /** A process that the lab has started itself; nothing, if it cannot fork. */
  async addRegistered(name, { bot, leads }) {
    const run = this.addRun(name, { bot, what: 'stays', isKept: true, isRegistered: true })
    const child = spawn(program('stays'), [run.witness.path], {
      stdio: 'ignore',
      detached: leads,
      ...this.asUser,
    })
    child.on('error', () => {})
    if (child.pid === undefined) {
      this.runs.delete(name)
      return undefined
    }
    run.hasBegun(child.pid)
    await this.stands(run, 1)
    return run
  }

  /** Nobody's run: `name` of the fixtures with the number `pid`, if that is given. False, if it could not be had. */
  async addStranger(name, { who, pid, before, fixture = 'stays', args = [], isSlow = false, ...options }) {
    const witness = this.#witnesses.get(name)
    const file = program(fixture)
    before?.()
    const as = { stdio: 'ignore', detached: true, ...this.asUser, ...options }
    const child = spawn(file, [witness.path, ...args], as)
    child.on('error', () => {})
    const stranger = { who, pid: child.pid, witness, process: new ProcessHandle(child.pid) }
    if (pid === undefined ? child.pid === undefined : child.pid !== pid) return this.#turnAway(stranger)
    // Who waits for a lock may have to wait for long: then it is nobody yet.
    const stands = await witness.ready(1, isSlow ? 300 : STANDS_MS).then(
      () => true,
      () => false,
    )
    if (!stands) return this.#turnAway(stranger)
    this.strangers.push(stranger)
    return stranger
  }

  #turnAway(stranger) {
    stranger.witness.release()
    stranger.process.signal('SIGKILL')
    return false
  }

  /** It may go. */
  dismiss(stranger) {
    this.strangers = this.strangers.filter((it) => it !== stranger)
    stranger.process.signal('SIGKILL')
  }

  async stands(run, count) {
    // It may be cancelled before, or be over: then it never stands.
    await run.witness.ready(count, run.hasCause ? 300 : STANDS_MS).catch(() => {})
    run.witness.release()
  }

  continueAll() {
    for (const pid of processes().filter((pid) => pid !== process.pid && pid !== 1))
      new ProcessHandle(pid).signal('SIGCONT')
  }

  // ---- what is done ---------------------------------------------------------------------------------------------------

  /**
   * Has a bot do something. What comes of it is noted when it comes; nobody waits for it unless it is `awaited`. `heard(result)` is called
   * in the moment of the answer, `refused(isGone)` if there is none but an error, or the bot is gone, and `over()` in any case.
   */
  async order(bot, order, args, { awaited = false, heard, refused, over } = {}) {
    const note = { bot: bot.name, order, step: this.#at, outcome: 'unanswered' }
    this.orders.push(note)
    const answer = new Promise((resolve) => {
      bot.ask(order, args, ({ result, error, isGone }) => {
        if (error) Object.assign(note, { outcome: 'refused', code: error.code, message: error.message })
        else note.outcome = isGone ? 'bot gone' : 'done'
        if (note.outcome === 'done') heard?.(result)
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

  /** Somebody who is no bot. Returns what is to be called when it has ended. */
  followOther(child) {
    this.#others.add(child)
    return () => this.#others.delete(child)
  }

  /** Nobody, or no bot, can fork from now on. A Node that is not up yet may wait for its threads for ever; that is none of ours. */
  noForks() {
    this.forksFailed++
    for (const child of this.#others) if (!hasLoaded(child.pid, ADDON)) child.kill('SIGKILL')
  }

  /** The same with somebody who is no bot. `work` resolves with what is to be noted, `{ outcome, code, message }`. */
  async errand(who, order, work, { awaited = false } = {}) {
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

  /** Every run that this is true of now, or becomes true of until the function that is returned is called, may end for this cause. */
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

  /** The runs of the scope are ended by the one that replaces them, which may have to wait for a while. */
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

  // ---- what is heard and seen -----------------------------------------------------------------------------------------

  #hear(bot, { begun, failed, over, closed, killed, pid, code, exit, bytes }) {
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
    // Whoever says that it is over has no need of our end.
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

  #read() {
    const { text: now, invalid, runIds } = readRegistry(this.registryPath)
    this.reads.count++
    if (invalid && now !== this.vandalism && this.reads.invalid.length < 10) this.reads.invalid.push(invalid)
    for (const run of this.runs.values()) {
      if (!run.mustBeRecorded || run.registryLost || runIds.has(run.name)) continue
      // Looked at after the registry was: who is alive now was alive then.
      if (run.isAlive())
        run.wasMissing(`alive at step ${this.#at}, and not in the registry:\n${run.witness.holders()}`)
    }
  }

  #lookAtStrangers() {
    for (const stranger of this.strangers)
      if (stranger.endedAt === undefined && stranger.witness.isGone()) stranger.endedAt = this.#at
    for (const run of this.runs.values())
      if (run.isStranger && run.endedAt === undefined && run.isGone()) run.endedAt = this.#at
  }

  /** Puts one thing right again, if it is wrong. */
  async remedy(what) {
    const remedy = this.remedies.get(what)
    this.remedies.delete(what)
    return remedy ? await remedy() : false
  }

  async relent() {
    // Those that are still to come may depend on forks.
    for (const what of ['no forks', ...this.remedies.keys()]) await this.remedy(what)
  }

  /** What was on record until now may be lost. */
  losesRegistry() {
    for (const run of this.runs.values()) run.registryLost = true
  }

  async pass(ms) {
    await delay(ms)
  }

  get facts() {
    return {
      runs: [...this.runs.values()].map((run) => ({ ...run.facts, endedAt: run.endedAt })),
      strangers: this.strangers.map(({ who, pid, endedAt }) => ({ who, pid, endedAt })),
      bots: [...this.bots.values()].map((bot) => bot.facts),
      orders: this.orders,
      claims: this.claims,
      reports: this.reports,
      kills: this.kills,
      undelivered: this.undelivered,
      reads: this.reads,
      played: this.played,
      final: this.final,
    }
  }
}
