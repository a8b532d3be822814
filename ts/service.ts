// ensureService: a long-lived worker of which there is one, whoever asks for it, and however many ask at once.
//
// The registry says whether there is one. An instance is written down before its command runs, under the lock of its scope and only if
// nobody else's is there: so there is never a second one, and none that its entry does not lead to. Whoever does not get the lock
// finds the entry and waits for that instance. Nobody waits for its starter: an instance needs none (`onOwnerExit: 'keep'`), and if
// the starter died before it was one, its process is dead, the entry's token says so, and whoever looks next takes the turn.

import { closeSync, openSync } from 'node:fs'
import type { CancelOptions, CancelResult, RunExit, RunRecord, Service } from '../index.js'
import { adopt } from './adopt.js'
import { cancelMatching } from './cancel.js'
import { readCancelOptions } from './cancel-options.js'
import { abortError, codedError } from './errors.js'
import { describeExit } from './exit.js'
import { processState } from './native.js'
import type { OwnedProcess } from './owned-process.js'
import type { Owner } from './owner.js'
import { look, probe, type Readiness, type Stranger, squatter } from './readiness.js'
import { exitOfRecord, isOver } from './records.js'
import { refuseSurvivors } from './scopes.js'
import { readServiceOptions, type ServiceWish, scopeOf, serviceName } from './service-options.js'
import { spawn } from './spawn.js'
import { awake, LATE, pause, within } from './waiting.js'

/** Between two looks: soon at first, then seldom. */
const FIRST_LOOK_MS = 10
const LAST_LOOK_MS = 200
/** How soon, and for how long, it is tried again if somebody else is about to start it, and nothing comes of it. */
const RETRY_MS = 20
const PATIENCE_MS = 10_000
/** What passes. Any other failure to execute the command is the same the next time. */
const PASSING = new Set(['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM', 'ETXTBSY'])

export async function ensureService(owner: Owner, options: unknown): Promise<Service> {
  const wish = readServiceOptions(options, owner.graceMs)
  return awake(() => new Ensuring(owner, wish).untilUp())
}

export async function stopService(
  owner: Owner,
  name: unknown,
  options?: CancelOptions,
): Promise<CancelResult> {
  readCancelOptions(options)
  const wanted = serviceName(name, 'name')
  return cancelMatching(owner, { scopeKey: scopeOf(wanted) }, (run) => run.service === wanted, options)
}

/** One that was found, or that we have started. */
interface Instance {
  readonly record: RunRecord
  /** It had been there for longer than one takes to come up. */
  readonly isOld?: boolean
  readonly child?: OwnedProcess
  /** Why the command could not be executed after all. */
  readonly refusal?: () => NodeJS.ErrnoException | undefined
}

/** Why an instance is no use. */
interface Failure {
  readonly why: string
  readonly cause?: Error | undefined
}

type Look = Readiness | { kind: 'ended' }

class Ensuring {
  #owner: Owner
  #wish: ServiceWish
  /** Instances that we saw fail to come up, whoever has started them: ten callers must not make it thirty attempts. */
  #failures = 0
  #hasReplaced = false
  /** How often in a row the port answered although there was no instance. */
  #squatted = 0
  /** Since when it has been somebody else's turn. */
  #turnedAwayAt: number | undefined

  constructor(owner: Owner, wish: ServiceWish) {
    this.#owner = owner
    this.#wish = wish
  }

  async untilUp(): Promise<Service> {
    for (;;) {
      const instance = (await this.#find()) ?? (await this.#start())
      if (!instance) {
        await this.#tryAgain()
        continue
      }
      this.#turnedAwayAt = undefined
      this.#squatted = 0
      const failure = await this.#untilReady(instance)
      if (!failure) return this.#service(instance)
      // To replace one that had been up is no second attempt. But that is said once: clocks may be wrong.
      if (instance.isOld && !this.#hasReplaced) this.#hasReplaced = true
      else await this.#count(failure)
    }
  }

  // ---- the instance that there is ------------------------------------------------------------------------------------

  /** The one that is alive. What is left of others is ended first: nothing of a tree may outlive its entry. */
  async #find(): Promise<Instance | undefined> {
    let living: RunRecord | undefined
    for (const record of await this.#records()) {
      const state = stateOf(record)
      if (state === 'unknown') throw cannotTell(this.#wish.name, record)
      if (state === 'alive') living ??= record
      else if (isOver(record)) await adopt(this.#owner, record.runId).catch(() => {})
      else await this.#end(record)
    }
    if (!living) return undefined
    return { record: living, isOld: Date.now() - living.startedAt > this.#wish.readyTimeoutMs }
  }

  async #records(): Promise<RunRecord[]> {
    const { name, scopeKey } = this.#wish
    const inScope = await this.#owner.registry.find({ scopeKey })
    return inScope.filter(({ service }) => service === name)
  }

  /** By its run id: should there be another by now, that one is not meant. */
  async #end({ runId }: RunRecord): Promise<void> {
    const { scopeKey } = this.#wish
    const { exits } = await cancelMatching(this.#owner, { runId, scopeKey }, (run) => run.runId === runId)
    refuseSurvivors(scopeKey, exits)
  }

  // ---- a new one -----------------------------------------------------------------------------------------------------

  /**
   * Undefined if it is not our turn, or if we have to look again.
   *
   * The port is tried first, and the scope found empty afterwards: what had answered was not ours, unless an instance came and went in
   * between. So it is tried twice before anybody is called a squatter.
   */
  async #start(): Promise<Instance | undefined> {
    const { port, scopeKey, signal } = this.#wish
    const address = port === undefined ? undefined : (await probe(this.#wish, port)).address
    if (signal?.aborted) throw abortError(signal.reason)
    let child: OwnedProcess | undefined
    const isOurTurn = this.#owner.writing().inEmptyScope(scopeKey, () => {
      if (address === undefined) child = this.#spawn()
    })
    if (child) return this.#begun(child)
    if (isOurTurn && address !== undefined && port !== undefined && ++this.#squatted === 2)
      throw portTaken(this.#wish, await squatter(address, port))
    return undefined
  }

  /** Nothing of it is tied to us: no stream, no event loop, no life. */
  #spawn(): OwnedProcess {
    const { name, command, args, options, scopeKey, logPath } = this.#wish
    const log = logPath === undefined ? 'ignore' : openSync(logPath, 'a', 0o600)
    try {
      const detached = { stdio: ['ignore', log, log], scopeKey, onOwnerExit: 'keep', windowsHide: true }
      const child = spawn(this.#owner, command, args, { ...detached, ...options }, name)
      child.unref()
      return child
    } finally {
      if (log !== 'ignore') closeSync(log)
    }
  }

  async #begun(child: OwnedProcess): Promise<Instance | undefined> {
    let refusal: NodeJS.ErrnoException | undefined
    child.on('error', (error) => {
      refusal = error
    })
    const [record] = this.#owner.registry.own(child.runId, undefined)
    if (record) return { child, record, refusal: () => refusal }
    // It was over before we could look, or has never been.
    const exit = await child.wait()
    await this.#count(failureOf(exit, refusal))
    return undefined
  }

  // ---- until it is up ------------------------------------------------------------------------------------------------

  /** Undefined: it is. What we have started and nobody is going to use is ended, whatever goes wrong. */
  async #untilReady(instance: Instance): Promise<Failure | undefined> {
    try {
      const failure = await this.#watch(instance)
      if (failure && failure !== ENDED) await this.#end(instance.record)
      return failure === ENDED ? await this.#post(instance) : failure
    } catch (error) {
      await instance.child?.cancel()
      throw error
    }
  }

  async #watch({ record, child }: Instance): Promise<Failure | undefined> {
    const { readyTimeoutMs, signal } = this.#wish
    const giveUpAt = performance.now() + readyTimeoutMs
    const ended = child ? child.wait().then((): Look => ({ kind: 'ended' })) : new Promise<never>(() => {})
    let cause: Error | undefined
    let strangers = 0
    for (let wait = FIRST_LOOK_MS; ; wait = Math.min(2 * wait, LAST_LOOK_MS)) {
      const left = giveUpAt - performance.now()
      if (left <= 0) return { why: `it was not ready within ${readyTimeoutMs} ms`, cause }
      const seen = await within(Promise.race([this.#look(record), ended]), left, signal)
      if (seen === LATE) continue
      if (seen.kind === 'ready') return undefined
      if (seen.kind === 'ended') return ENDED
      if (seen.kind === 'not-yet') cause = seen.error ?? cause
      // Twice: it may have got the port between the two questions.
      strangers = seen.kind === 'stranger' ? strangers + 1 : 0
      if (seen.kind === 'stranger' && strangers === 2) throw portTaken(this.#wish, seen.who)
      await within(ended, Math.min(wait, left), signal)
    }
  }

  /** Whoever is alive after it was found ready was alive when it was. */
  async #look(record: RunRecord): Promise<Look> {
    const readiness = await look(this.#wish, record)
    const state = stateOf(record)
    // What cannot be told now may be told at the next look.
    if (state === 'unknown') return { kind: 'not-yet' }
    return state === 'alive' ? readiness : { kind: 'ended' }
  }

  /** How it ended, if anybody knows. */
  async #post({ child, refusal, record: { runId } }: Instance): Promise<Failure> {
    if (child) {
      const exit = await child.wait()
      if (exit.reason === 'manual-cancel') throw stopped(this.#wish.name)
      return failureOf(exit, refusal?.())
    }
    const record = (await this.#records()).find((entry) => entry.runId === runId)
    return { why: record?.exit ? exitOfRecord(record).message : 'ended before it was ready' }
  }

  async #service({ record, child }: Instance): Promise<Service> {
    const now = (await this.#records()).find(({ runId }) => runId === record.runId) ?? record
    return new RunningService(this.#owner, this.#wish.name, now, child !== undefined)
  }

  // ---- if not --------------------------------------------------------------------------------------------------------

  async #count(failure: Failure): Promise<void> {
    const { attempts, backoffMs, signal } = this.#wish
    if (++this.#failures >= attempts) throw failed(this.#wish, failure)
    await pause(backoffMs * 2 ** (this.#failures - 1), signal)
    this.#turnedAwayAt = undefined
  }

  /** Somebody else is about to start it, or something else has its scope. */
  async #tryAgain(): Promise<void> {
    this.#turnedAwayAt ??= performance.now()
    if (performance.now() - this.#turnedAwayAt > PATIENCE_MS) throw contested(this.#wish)
    await pause(RETRY_MS, this.#wish.signal)
  }
}

const ENDED: Failure = { why: 'ended' }

class RunningService implements Service {
  static readonly name = 'Service'

  readonly name: string
  readonly runId: string
  readonly pid: number
  readonly record: RunRecord
  readonly started: boolean
  #owner: Owner

  constructor(owner: Owner, name: string, record: RunRecord, started: boolean) {
    this.#owner = owner
    this.name = name
    this.runId = record.runId
    this.pid = record.pid
    this.record = record
    this.started = started
  }

  async stop(options?: CancelOptions): Promise<RunExit> {
    const { runId, record } = this
    const meant = { runId, scopeKey: scopeOf(this.name) }
    const { exits } = await cancelMatching(this.#owner, meant, (run) => run.runId === runId, options)
    return exits[0] ?? goneBefore(record)
  }
}

/** Whether an instance is alive. One without its keeper is not: nothing holds it together, and it is about to be ended. */
function stateOf({ state, startToken, keeper, containment }: RunRecord): 'alive' | 'over' | 'unknown' {
  if (state === 'exiting' || state === 'exited') return 'over'
  const root = startToken === null ? 'unknown' : processState(startToken)
  if (root === 'unknown') return 'unknown'
  // Where there is a job, its keeper was the bot that has started it.
  const holder = containment === 'job' ? 'alive' : keeper ? processState(keeper.startToken) : 'gone'
  if (root === 'alive' && holder === 'unknown') return 'unknown'
  return root === 'alive' && holder === 'alive' ? 'alive' : 'over'
}

function failureOf(exit: RunExit, refusal: NodeJS.ErrnoException | undefined): Failure {
  if (refusal && !PASSING.has(refusal.code ?? '')) throw refusal
  return { why: exit.message, cause: refusal }
}

function goneBefore({ runId, startedAt }: RunRecord): RunExit {
  const durationMs = Math.max(0, Date.now() - startedAt)
  const unknown = { exitCode: null, signal: null, durationMs, limitMs: 0, escaped: [], survivors: [] }
  return describeExit({ runId, ending: 'gone', reason: 'lost', ...unknown })
}

function failed({ name, attempts, logPath }: ServiceWish, { why, cause }: Failure): Error {
  const times = attempts === 1 ? 'in one attempt' : `in ${attempts} attempts`
  const hint = logPath === undefined ? 'options.logPath keeps what it says' : `see ${logPath}`
  const because = cause ? ` (${cause.message})` : ''
  const message = `Service "${name}" did not come up ${times}. The last time: ${why}${because}; ${hint}.`
  const error = codedError(Error, 'ERR_OWNED_SERVICE_FAILED', message)
  return cause ? Object.assign(error, { cause }) : error
}

function stopped(name: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_SERVICE_STOPPED',
    `Service "${name}" was stopped by somebody else before it was ready. Nothing of it is left; call ensureService again if it is still wanted.`,
  )
}

function portTaken({ name, port }: ServiceWish, { pid, command }: Stranger): Error {
  const who = pid === undefined ? 'a process' : `process ${pid} (${command ?? 'of unknown name'})`
  return codedError(
    Error,
    'ERR_OWNED_PORT_TAKEN',
    `Port ${port} is taken by ${who} that is not service "${name}". End it, or give the service another port.`,
  )
}

function cannotTell(name: string, { pid }: RunRecord): Error {
  return codedError(
    Error,
    'ERR_OWNED_SERVICE_UNKNOWN',
    `Whether service "${name}" (process ${pid}) is alive cannot be told from here: it was started in another PID namespace, or /proc ` +
      'cannot be read. Nothing was started; give each container a registry of its own.',
  )
}

function contested({ name, scopeKey }: ServiceWish): Error {
  return codedError(
    Error,
    'ERR_OWNED_SCOPE_BUSY',
    `Service "${name}" cannot be started: scope "${scopeKey}" is in use by something else; list({ scopeKey: '${scopeKey}' }) shows it. ` +
      'Nothing was started.',
  )
}
