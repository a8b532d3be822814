// The turns of all sessions. It keeps no list of children: the registry lists the running turns, so
// any process that can read the registry can cancel them.

import { createInterface } from 'node:readline'
import type { Supervisor } from 'spawn-owned'

export interface TurnsOptions {
  supervisor: Supervisor
  /** The command of the agent and its first arguments. */
  agent: readonly string[]
  timeoutMs: number
  say: (line: string) => void
}

export class Turns {
  readonly #supervisor: Supervisor
  readonly #agent: readonly string[]
  readonly #say: (line: string) => void
  #timeoutMs: number

  constructor({ supervisor, agent, timeoutMs, say }: TurnsOptions) {
    this.#supervisor = supervisor
    this.#agent = agent
    this.#timeoutMs = timeoutMs
    this.#say = say
  }

  /**
   * Terminates what earlier bots left. Usually nothing is left, because keepers terminate a killed
   * bot's runs.
   */
  async reap(): Promise<void> {
    const { killed, alreadyDead, skipped } = await this.#supervisor.reapOrphans(process.pid)
    if (killed.length > 0) this.#say(`boot: ended what an earlier bot had left: ${killed.join(', ')}`)
    if (alreadyDead.length > 0) this.#say(`boot: ended with an earlier bot: ${alreadyDead.join(', ')}`)
    for (const { pid, reason } of skipped) this.#say(`boot: left ${pid} alone: ${reason}`)
    if (killed.length + alreadyDead.length + skipped.length === 0) this.#say('boot: nothing was left')
  }

  async begin(session: string, text: string): Promise<void> {
    // There is no `await` between this check and the spawn, so two lines cannot start two turns.
    if (this.#supervisor.list({ sessionId: session }).length > 0) {
      this.#say(`${session}: one turn at a time. Type /cancel ${session} to terminate the running turn`)
      return
    }
    const [command, ...args] = this.#agent
    const agent = this.#supervisor.spawnOwned(command, [...args, text], {
      sessionId: session,
      timeoutMs: this.#timeoutMs,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const input of [agent.stdout, agent.stderr])
      createInterface({ input }).on('line', (line) => this.#say(`${session}| ${line}`))
    const { message, survivors } = await agent.wait()
    this.#say(`${session}: ${message}`)
    for (const { pid, why } of survivors) this.#say(`${session}: could not terminate ${pid}: ${why}`)
  }

  async cancel(session: string): Promise<void> {
    const { outcome } = await this.#supervisor.cancel({ sessionId: session })
    if (outcome === 'not-found') this.#say(`${session}: nothing in flight`)
    else this.#say(`${session}: ${outcome}, nothing of it is left`)
  }

  setLimit(ms: number): void {
    if (!(ms >= 0)) {
      this.#say('/timeout needs a number of seconds ≥ 0, for example /timeout 600')
      return
    }
    this.#timeoutMs = ms
    this.#say(ms > 0 ? `new turns time out after ${ms / 1000}s` : 'new turns have no timeout')
  }

  printRuns(): void {
    const runs = this.#supervisor.list()
    for (const { sessionId, pid, commandPreview, botPid } of runs)
      this.#say(`${sessionId}: ${pid} of bot ${botPid}: ${commandPreview}`)
    if (runs.length === 0) this.#say('nothing in flight')
  }
}
