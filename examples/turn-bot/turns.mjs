// The turns of all sessions. It keeps no list of children: who is in flight is in the registry, and whoever can read that can cancel.

import { createInterface } from 'node:readline'

export class Turns {
  #supervisor
  #agent
  #timeoutMs
  #say

  constructor({ supervisor, agent, timeoutMs, say }) {
    this.#supervisor = supervisor
    this.#agent = agent
    this.#timeoutMs = timeoutMs
    this.#say = say
  }

  /** What bots before this one have left. One that was killed usually leaves nothing: its keepers have seen to that. */
  async clearAway() {
    const { killed, alreadyDead, skipped } = await this.#supervisor.reapOrphans(process.pid)
    if (killed.length > 0) this.#say(`boot: ended what an earlier bot had left: ${killed.join(', ')}`)
    if (alreadyDead.length > 0) this.#say(`boot: ended with an earlier bot: ${alreadyDead.join(', ')}`)
    for (const { pid, reason } of skipped) this.#say(`boot: ${pid} is left alone: ${reason}`)
    if (killed.length + alreadyDead.length + skipped.length === 0) this.#say('boot: nothing was left')
  }

  async begin(session, text) {
    // Looked up and begun without a pause in between, so two lines at once are not both let in.
    if (this.#supervisor.list({ sessionId: session }).length > 0) {
      this.#say(`${session}: one turn at a time. /cancel ${session} ends the one in flight`)
      return
    }
    const [command, ...args] = this.#agent
    const agent = this.#supervisor.spawnOwned(command, [...args, text], {
      sessionId: session,
      timeoutMs: this.#timeoutMs,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    // wait() tells.
    agent.on('error', () => {})
    for (const input of [agent.stdout, agent.stderr])
      createInterface({ input }).on('line', (line) => this.#say(`${session}| ${line}`))
    const { message, survivors } = await agent.wait()
    this.#say(`${session}: ${message}`)
    for (const { pid, why } of survivors) this.#say(`${session}: ${pid} could not be ended: ${why}`)
  }

  async cancel(session) {
    const { outcome } = await this.#supervisor.cancel({ sessionId: session })
    if (outcome === 'not-found') this.#say(`${session}: nothing in flight`)
    else this.#say(`${session}: ${outcome}, nothing of it is left`)
  }

  limit(ms) {
    if (!(ms >= 0)) return this.#say('how many seconds?')
    this.#timeoutMs = ms
    this.#say(ms > 0 ? `turns may take ${ms / 1000}s` : 'turns may take as long as they like')
  }

  tell() {
    const runs = this.#supervisor.list()
    for (const { sessionId, pid, commandPreview, botPid } of runs)
      this.#say(`${sessionId}: ${pid} of bot ${botPid}: ${commandPreview}`)
    if (runs.length === 0) this.#say('nothing in flight')
  }
}
