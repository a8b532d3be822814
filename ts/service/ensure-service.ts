// ensureService: one long-lived instance per name, no matter how many bots call it at the same
// time.
//
// The registry says whether an instance exists. A starter holds the lock of the scope, checks that
// the scope is empty, and writes the entry before the command runs. So a second instance never
// exists, and every instance has an entry. A bot that does not get the lock finds the entry, and
// waits for that instance. No bot waits for the starter: an instance does not need it
// (`onOwnerExit: 'keep'`). If the starter dies before the command runs, the start token of the
// entry shows that its process is gone, and the next bot starts an instance.

import { closeSync, openSync } from 'node:fs'
import type { CancelOptions, CancelResult, RunExit, RunRecord, Service } from '../../index.js'
import { processState } from '../native/addon.js'
import { adopt } from '../orphans/adopt.js'
import { exitOfRecord, isOver } from '../registry/record-exit.js'
import { cancelMatching } from '../run/cancel.js'
import { copyCancelOptions } from '../run/cancel-options.js'
import type { OwnedProcess } from '../run/owned-process.js'
import { describeExit, nothingElse } from '../run/run-exit.js'
import { refuseSurvivors } from '../run/scopes.js'
import { spawn } from '../run/spawn.js'
import type { SupervisorContext } from '../supervisor/supervisor-context.js'
import { abortError, codedError } from '../util/errors.js'
import { awake, LATE, pause, within } from '../util/timeouts.js'
import { epochMs, monotonicMs } from '../util/timers.js'
import { checkReadiness, probe, type Readiness, type Stranger, squatter } from './readiness.js'
import { readServiceOptions, type ServiceSettings, scopeOf, serviceName } from './service-options.js'

/** The delay between two readiness checks. It doubles from the first value to the last. */
const FIRST_DELAY_MS = 10
const LAST_DELAY_MS = 200
/** How often, and for how long, to retry while another bot holds the scope without an instance. */
const RETRY_MS = 20
const RETRY_LIMIT_MS = 10_000
/** The temporary errors of starting a command. A retry after any other error fails again. */
const TEMPORARY = new Set(['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM', 'ETXTBSY'])

export async function ensureService(context: SupervisorContext, options: unknown): Promise<Service> {
  const settings = readServiceOptions(options, context.graceMs)
  return awake(() => new Ensuring(context, settings).untilUp())
}

export async function stopService(
  context: SupervisorContext,
  name: unknown,
  options?: CancelOptions,
): Promise<CancelResult> {
  const given = copyCancelOptions(options, 'stopService')
  const wanted = serviceName(name, 'name')
  return cancelMatching(context, { scopeKey: scopeOf(wanted) }, (run) => run.service === wanted, given)
}

/** An instance that was found or started. */
interface Instance {
  readonly record: RunRecord
  /** It is older than `readyTimeoutMs`, so it was probably up before. */
  readonly isOld?: boolean
  readonly child?: OwnedProcess
  /** Returns the error of a command that could not be executed. */
  readonly refusal?: () => NodeJS.ErrnoException | undefined
}

/** Why an instance cannot be used. */
interface Failure {
  readonly why: string
  readonly cause?: Error | undefined
}

type Check = Readiness | { kind: 'ended' }

class Ensuring {
  #context: SupervisorContext
  #settings: ServiceSettings
  /**
   * Failed instances of any starter. Otherwise ten callers would make thirty attempts instead of
   * three.
   */
  #failures = 0
  #hasReplaced = false
  /** How often in a row the port answered while no instance existed. */
  #portAnswers = 0
  /** Since when another bot holds the scope without an instance. */
  #waitingSince: number | undefined

  constructor(context: SupervisorContext, settings: ServiceSettings) {
    this.#context = context
    this.#settings = settings
  }

  async untilUp(): Promise<Service> {
    for (;;) {
      // A closed supervisor must not terminate the rest of earlier instances.
      this.#context.refuseWhenClosed()
      const instance = (await this.#find()) ?? (await this.#start())
      if (!instance) {
        await this.#waitForScope()
        continue
      }
      this.#waitingSince = undefined
      this.#portAnswers = 0
      const failure = await this.#untilReady(instance)
      if (!failure) return this.#service(instance)
      // An instance that was up before does not count as a failed attempt. Only once, because the
      // age depends on the clock, which can be wrong.
      if (instance.isOld && !this.#hasReplaced) this.#hasReplaced = true
      else await this.#count(failure)
    }
  }

  // ---- find the instance ------------------------------------------------------------------------

  /**
   * Returns the live instance, if any.
   *
   * Terminates the rest of earlier instances first: no process may outlive the entry of its run.
   */
  async #find(): Promise<Instance | undefined> {
    let living: RunRecord | undefined
    for (const record of await this.#records()) {
      const state = stateOf(record)
      if (state === 'unknown') throw cannotTell(this.#settings.name, record)
      if (state === 'alive') living ??= record
      else if (isOver(record)) await this.#removeEntry(record)
      else await this.#end(record)
    }
    if (!living) return undefined
    return { record: living, isOld: epochMs() - living.startedAt > this.#settings.readyTimeoutMs }
  }

  async #records(): Promise<RunRecord[]> {
    const { name, scopeKey } = this.#settings
    const inScope = await this.#context.registry.find({ scopeKey })
    return inScope.filter(({ service }) => service === name)
  }

  /** Terminates an instance, found by its run id: a newer instance must not be hit. */
  async #end({ runId }: RunRecord): Promise<void> {
    const { scopeKey } = this.#settings
    const { exits } = await cancelMatching(this.#context, { runId, scopeKey }, (run) => run.runId === runId)
    refuseSurvivors(scopeKey, exits)
    // The keeper can record the end just before the cancel reads the entry. The cancel then does
    // nothing, and the entry is still there.
    const left = (await this.#records()).find((record) => record.runId === runId)
    if (left && isOver(left)) await this.#removeEntry(left)
  }

  /** Removes the entry of an instance that has ended. Another bot may remove it first. */
  async #removeEntry({ runId }: RunRecord): Promise<void> {
    await adopt(this.#context, runId).catch(() => {})
  }

  // ---- start an instance ------------------------------------------------------------------------

  /**
   * Starts an instance. Returns undefined if the scope is not empty, or if a retry is needed.
   *
   * It probes the port first, and checks that the scope is empty after that. So the process that
   * answered was no instance, unless an instance started and ended in between. That is why the port
   * must answer twice before this throws ERR_OWNED_PORT_TAKEN.
   */
  async #start(): Promise<Instance | undefined> {
    const { port, scopeKey, signal } = this.#settings
    const address = port === undefined ? undefined : (await probe(this.#settings, port)).address
    if (signal?.aborted) throw abortError(signal.reason)
    // A closed supervisor creates neither log nor lock. No await follows until the command is
    // started.
    this.#context.refuseWhenClosed()
    let child: OwnedProcess | undefined
    const wasEmpty = this.#context.writing().inEmptyScope(scopeKey, () => {
      if (address === undefined) child = this.#spawn()
    })
    if (child) return this.#started(child)
    if (wasEmpty && address !== undefined && port !== undefined && ++this.#portAnswers === 2)
      throw portTaken(this.#settings, await squatter(address, port))
    return undefined
  }

  /**
   * Starts the command without ties to this bot: no streams, not ref'ed, and it outlives the bot.
   */
  #spawn(): OwnedProcess {
    const { name, command, args, options, scopeKey, logPath } = this.#settings
    const log = logPath === undefined ? 'ignore' : openSync(logPath, 'a', 0o600)
    try {
      const detached = { stdio: ['ignore', log, log], scopeKey, onOwnerExit: 'keep', windowsHide: true }
      const child = spawn(this.#context, command, args, { ...detached, ...options }, name)
      child.unref()
      return child
    } finally {
      if (log !== 'ignore') closeSync(log)
    }
  }

  async #started(child: OwnedProcess): Promise<Instance | undefined> {
    let refusal: NodeJS.ErrnoException | undefined
    child.on('error', (error) => {
      refusal = error
    })
    const [record] = this.#context.registry.own(child.runId, undefined)
    if (record) return { child, record, refusal: () => refusal }
    // The command has already ended, or it could not be started.
    const exit = await child.wait()
    await this.#count(failureOf(exit, refusal))
    return undefined
  }

  // ---- wait until it is ready -------------------------------------------------------------------

  /**
   * Resolves to undefined when the instance is ready. On any error it cancels an instance it
   * started.
   */
  async #untilReady(instance: Instance): Promise<Failure | undefined> {
    try {
      const failure = await this.#watch(instance)
      if (failure && failure !== ENDED) await this.#end(instance.record)
      return failure === ENDED ? await this.#failureOfEnded(instance) : failure
    } catch (error) {
      await instance.child?.cancel()
      throw error
    }
  }

  async #watch({ record, child }: Instance): Promise<Failure | undefined> {
    const { readyTimeoutMs, signal } = this.#settings
    const giveUpAt = monotonicMs() + readyTimeoutMs
    const ended = child ? child.wait().then((): Check => ({ kind: 'ended' })) : new Promise<never>(() => {})
    let cause: Error | undefined
    let strangers = 0
    for (let wait = FIRST_DELAY_MS; ; wait = Math.min(2 * wait, LAST_DELAY_MS)) {
      const left = giveUpAt - monotonicMs()
      if (left <= 0) return { why: `it was not ready within ${readyTimeoutMs} ms`, cause }
      const result = await within(Promise.race([this.#check(record), ended]), left, signal)
      if (result === LATE) continue
      if (result.kind === 'ready') return undefined
      if (result.kind === 'ended') return ENDED
      if (result.kind === 'not-yet') cause = result.error ?? cause
      // Twice, because the service can bind the port between the probe and the kernel's answer.
      strangers = result.kind === 'stranger' ? strangers + 1 : 0
      if (result.kind === 'stranger' && strangers === 2) throw portTaken(this.#settings, result.who)
      await within(ended, Math.min(wait, left), signal)
    }
  }

  /**
   * Checks readiness before liveness: an instance that is alive after the check was alive during
   * it.
   */
  async #check(record: RunRecord): Promise<Check> {
    const readiness = await checkReadiness(this.#settings, record)
    const state = stateOf(record)
    // The next check may be able to read the state.
    if (state === 'unknown') return { kind: 'not-yet' }
    return state === 'alive' ? readiness : { kind: 'ended' }
  }

  /** Returns why an instance ended before it was ready. */
  async #failureOfEnded({ child, refusal, record: { runId } }: Instance): Promise<Failure> {
    if (child) {
      const exit = await child.wait()
      if (exit.reason === 'manual-cancel') throw stopped(this.#settings.name)
      return failureOf(exit, refusal?.())
    }
    const record = (await this.#records()).find((entry) => entry.runId === runId)
    return { why: record?.exit ? exitOfRecord(record).message : 'ended before it was ready' }
  }

  async #service({ record, child }: Instance): Promise<Service> {
    const now = (await this.#records()).find(({ runId }) => runId === record.runId) ?? record
    return new RunningService(this.#context, this.#settings.name, now, child !== undefined)
  }

  // ---- retry ------------------------------------------------------------------------------------

  async #count(failure: Failure): Promise<void> {
    const { attempts, backoffMs, signal } = this.#settings
    if (++this.#failures >= attempts) throw failed(this.#settings, failure)
    await pause(backoffMs * 2 ** (this.#failures - 1), signal)
    this.#waitingSince = undefined
  }

  /** Waits before a retry: another bot is starting the service, or another run has its scope. */
  async #waitForScope(): Promise<void> {
    this.#waitingSince ??= monotonicMs()
    if (monotonicMs() - this.#waitingSince > RETRY_LIMIT_MS) throw contested(this.#settings)
    await pause(RETRY_MS, this.#settings.signal)
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
  #context: SupervisorContext

  constructor(context: SupervisorContext, name: string, record: RunRecord, started: boolean) {
    this.#context = context
    this.name = name
    this.runId = record.runId
    this.pid = record.pid
    this.record = record
    this.started = started
  }

  async stop(options?: CancelOptions): Promise<RunExit> {
    const given = copyCancelOptions(options, 'stop')
    const { runId, record } = this
    const filter = { runId, scopeKey: scopeOf(this.name) }
    const { exits } = await cancelMatching(this.#context, filter, (run) => run.runId === runId, given)
    return exits[0] ?? goneBefore(record)
  }
}

/**
 * Returns whether an instance is alive.
 *
 * An instance without its keeper is over: no process contains its tree, and it is about to be
 * terminated.
 */
function stateOf({ state, startToken, keeper, containment }: RunRecord): 'alive' | 'over' | 'unknown' {
  if (state === 'exiting' || state === 'exited') return 'over'
  const root = startToken === null ? 'unknown' : processState(startToken)
  if (root === 'unknown') return 'unknown'
  // On Windows the job object contains the tree. Its keeper was the bot that started the run.
  const holder = containment === 'job' ? 'alive' : keeper ? processState(keeper.startToken) : 'gone'
  if (root === 'alive' && holder === 'unknown') return 'unknown'
  return root === 'alive' && holder === 'alive' ? 'alive' : 'over'
}

function failureOf(exit: RunExit, refusal: NodeJS.ErrnoException | undefined): Failure {
  if (refusal && !TEMPORARY.has(refusal.code ?? '')) throw refusal
  return { why: exit.message, cause: refusal }
}

function goneBefore({ runId, startedAt }: RunRecord): RunExit {
  const durationMs = Math.max(0, epochMs() - startedAt)
  return describeExit({ runId, ending: 'gone', reason: 'lost', durationMs, ...nothingElse })
}

function failed({ name, attempts, logPath }: ServiceSettings, { why, cause }: Failure): Error {
  const times = attempts === 1 ? 'in one attempt' : `in ${attempts} attempts`
  const hint = logPath === undefined ? 'Set options.logPath to record its output' : `See ${logPath}`
  const because = cause ? ` (${cause.message})` : ''
  const message = `Service "${name}" did not become ready ${times}. The last failure: ${why}${because}. ${hint}.`
  const error = codedError(Error, 'ERR_OWNED_SERVICE_FAILED', message)
  return cause ? Object.assign(error, { cause }) : error
}

function stopped(name: string): Error {
  return codedError(
    Error,
    'ERR_OWNED_SERVICE_STOPPED',
    `Service "${name}" was stopped by another caller before it was ready. None of its processes is left. ` +
      'Call ensureService again if you still need it.',
  )
}

function portTaken({ name, port }: ServiceSettings, { pid, command }: Stranger): Error {
  const who = pid === undefined ? 'a process' : `process ${pid} (${command ?? 'unknown command'})`
  return codedError(
    Error,
    'ERR_OWNED_PORT_TAKEN',
    `Port ${port} is taken by ${who} that does not belong to service "${name}". Terminate it, or choose another port.`,
  )
}

function cannotTell(name: string, { pid }: RunRecord): Error {
  return codedError(
    Error,
    'ERR_OWNED_SERVICE_UNKNOWN',
    `It is unknown whether service "${name}" (process ${pid}) is alive: it was started in another PID namespace, or /proc ` +
      'cannot be read. Nothing was started. Use one registry per container.',
  )
}

function contested({ name, scopeKey }: ServiceSettings): Error {
  return codedError(
    Error,
    'ERR_OWNED_SCOPE_BUSY',
    `Service "${name}" cannot be started: another run uses scope "${scopeKey}". Nothing was started. ` +
      `list({ scopeKey: '${scopeKey}' }) shows that run.`,
  )
}
