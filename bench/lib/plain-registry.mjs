/**
 * The registry that bots write for themselves: one JSON file, rewritten as a whole and renamed into
 * place on each change. To its advantage it keeps the entries in memory instead of reading them
 * first. So it works for one bot only. It records five fields and no identity.
 */

import { readFileSync, renameSync, writeFileSync } from 'node:fs'

export class PlainRegistry {
  #path
  #entries

  constructor(path, entries = []) {
    this.#path = path
    this.#entries = entries
  }

  static read(path) {
    return new PlainRegistry(path, JSON.parse(readFileSync(path, 'utf8')).entries)
  }

  register(pid, sessionId) {
    this.#entries.push({
      pid,
      startedAt: Date.now(),
      sessionId,
      botPid: process.pid,
      commandPreview: 'claude --print --output-format stream-json --resume 0b1c2d3e',
    })
    this.#save()
  }

  unregister(pid) {
    this.#entries = this.#entries.filter((entry) => entry.pid !== pid)
    this.#save()
  }

  /** Returns the entries whose PID is free. It cannot tell which process has a PID. */
  reap() {
    const dead = []
    this.#entries = this.#entries.filter(({ pid }) => isTaken(pid) || !dead.push(pid))
    this.#save()
    return dead
  }

  #save() {
    const unfinished = `${this.#path}.tmp`
    writeFileSync(unfinished, JSON.stringify({ entries: this.#entries }, null, 2))
    renameSync(unfinished, this.#path)
  }
}

function isTaken(pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code !== 'ESRCH'
  }
}
