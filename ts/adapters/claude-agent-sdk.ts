// The process-spawn hook of the Claude Agent SDK, with owned runs.

import { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type { OwnedProcess } from '../../index.js'
import type * as Public from '../../types/claude-agent-sdk.js'
import { spawnOwned } from '../index.js'
import { invalidType } from '../util/errors.js'
import { AGENT_SPAWNER } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'

/**
 * Represents the whole tree of an agent as one process for the SDK.
 *
 * It exits when no process of the tree exists. So a query that has ended left no process, and the
 * exit of the root process alone does not end the query.
 */
class AgentProcess extends EventEmitter implements Public.AgentProcess {
  static override readonly name = 'AgentProcess'

  readonly run: OwnedProcess
  readonly stdin: Writable
  readonly stdout: Readable
  killed = false
  exitCode: number | null = null
  signalCode: NodeJS.Signals | null = null

  #isOver = false

  constructor(run: OwnedProcess, aborts: readonly AbortSignal[]) {
    super()
    this.run = run
    this.stdin = run.stdin as Writable
    this.stdout = run.stdout as Readable
    run.on('error', (error) => this.emit('error', error))
    const end = () => void this.kill()
    for (const abort of aborts) {
      if (abort.aborted) end()
      else abort.addEventListener('abort', end, { once: true })
    }
    run.wait().then(({ reason }) => {
      for (const abort of aborts) abort.removeEventListener('abort', end)
      this.#settle(reason !== 'spawn-error')
    })
  }

  kill(signal: NodeJS.Signals = 'SIGTERM'): boolean {
    if (this.#isOver) return false
    // Only the root process gets another signal. If the signal ends it, its tree is terminated.
    if (signal !== 'SIGTERM' && signal !== 'SIGKILL') return this.run.kill(signal)
    this.killed = true
    // `cancel` instead of `kill`: after a signal to the root process only, the reason would be
    // `signal`.
    this.run.cancel(signal === 'SIGKILL' ? { signal, graceMs: 0 } : { signal })
    return true
  }

  #settle(hasRun: boolean): void {
    this.#isOver = true
    this.exitCode = this.run.exitCode
    this.signalCode = this.run.signalCode
    // A command that was not started emits only `error`, as in Node.
    if (hasRun) this.emit('exit', this.exitCode, this.signalCode)
  }
}

export function createSpawner(options?: Public.SpawnerOptions): Public.Spawner {
  const given = readOptions(options, AGENT_SPAWNER, { of: 'createSpawner' })
  const { supervisor, signal: ownSignal, stderr, onRun, ...ownership } = given
  for (const [name, listener] of Object.entries({ stderr, onRun })) {
    if (listener !== undefined && typeof listener !== 'function')
      throw invalidType(`options.${name}`, 'of type function', listener)
  }
  return ({ command, args, cwd, env, signal }) => {
    const run = (supervisor?.spawnOwned ?? spawnOwned)(command, args, {
      ...ownership,
      cwd,
      env,
      stdio: ['pipe', 'pipe', stderr ? 'pipe' : 'ignore'],
      windowsHide: true,
    })
    if (stderr) run.stderr?.setEncoding('utf8').on('data', stderr)
    const agent = new AgentProcess(
      run,
      [ownSignal, signal].filter((abort) => abort !== undefined),
    )
    try {
      onRun?.(run)
    } catch (error) {
      // The SDK does not get the process, so it cannot terminate it.
      agent.on('error', () => {})
      agent.kill('SIGKILL')
      throw error
    }
    return agent
  }
}

export const spawnClaudeCodeProcess = createSpawner()
