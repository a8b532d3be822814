// The process-spawn hook of the Claude Agent SDK over an owned run.

import { EventEmitter } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type * as Public from '../claude-agent-sdk.js'
import type { OwnedProcess } from '../index.js'
import { invalidType } from './errors.js'
import { spawnOwned } from './index.js'

/**
 * The tree, told to the SDK as if it were one process. It has exited when nothing of it exists: so a query that has come to its end has
 * left nothing, and whoever has left the agent's session is no reason for the SDK to believe that all is over.
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
    // Other signals are no end yet. Should the agent take one for its end, the rest of the tree follows it.
    if (signal !== 'SIGTERM' && signal !== 'SIGKILL') return this.run.kill(signal)
    this.killed = true
    // Not only to the agent: that would be the end of it, and the reason would be a signal that came from who knows where.
    this.run.cancel(signal === 'SIGKILL' ? { signal, graceMs: 0 } : { signal })
    return true
  }

  #settle(hasRun: boolean): void {
    this.#isOver = true
    this.exitCode = this.run.exitCode
    this.signalCode = this.run.signalCode
    // What never ran has no exit, as in Node; `error` has told.
    if (hasRun) this.emit('exit', this.exitCode, this.signalCode)
  }
}

export function createSpawner(options: Public.SpawnerOptions = {}): Public.Spawner {
  const { supervisor, signal: ownSignal, stderr, onRun, ...ownership } = options
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
      // The SDK never gets to know the process, and nobody else would end it.
      agent.on('error', () => {})
      agent.kill('SIGKILL')
      throw error
    }
    return agent
  }
}

export const spawnClaudeCodeProcess = createSpawner()
