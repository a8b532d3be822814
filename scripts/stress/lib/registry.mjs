/** One registry for all rounds of a loop, like that of a bot that crashes a thousand times. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { createSupervisor } from 'spawn-owned'
import { Wrong } from './loop.mjs'

/** How far the file may lag behind the journal, on a busy machine. */
const BEHIND_MS = 1000

export class StressRegistry {
  #folder = mkdtempSync(join(tmpdir(), 'spawn-owned-stress-'))

  constructor() {
    this.path = join(this.#folder, 'process-registry.json')
    this.supervisor = createSupervisor({ registryPath: this.path })
    this.supervisor.on('event', ({ type, kind, message }) => {
      // A bot that is killed during a write leaves half a line. The journal is designed for that.
      if (type === 'registry' && kind !== 'torn') this.trouble ??= `${kind}: ${message}`
    })
  }

  /** Reaps the entries of ended bots, as the next bot would. */
  async reap() {
    const report = await this.supervisor.reapOrphans(process.pid)
    if (report.failed.length > 0) throw new Wrong(`the reap failed for: ${JSON.stringify(report.failed)}`)
    return report
  }

  /**
   * Fails unless the registry, and after a short time also its file, contains only entries of this
   * process.
   */
  async mustBeEmpty(because) {
    // Unlike list(), this also sees runs that have ended, but whose end is not recorded.
    const { decisions } = await this.supervisor.reapOrphans(process.pid, { dryRun: true })
    const left = decisions.map(({ record }) => record).filter(isOthers)
    if (left.length > 0) throw new Wrong(`${left.length} entries left ${because}: ${JSON.stringify(left)}`)
    const giveUpAt = performance.now() + BEHIND_MS
    while ((this.read()?.filter(isOthers) ?? []).length > 0) {
      if (performance.now() > giveUpAt)
        throw new Wrong(`the file still has entries ${because}\n${this.#files()}`)
      await delay(5)
    }
    if (this.trouble) throw new Wrong(this.trouble)
  }

  /** Temporary files of a writer that was killed. */
  litter() {
    return readdirSync(this.#folder).filter(
      (name) => !/\.json(?:\.lock|\.journal|\.journal\.old)?$/.test(name),
    )
  }

  #files() {
    const names = readdirSync(this.#folder)
    return names.map((name) => `--- ${name}\n${readFileSync(join(this.#folder, name), 'utf8')}`).join('\n')
  }

  /**
   * The entries of the file, or undefined if there is no file. Throws unless the file is valid
   * JSON.
   */
  read() {
    let text
    try {
      text = readFileSync(this.path, 'utf8')
    } catch (error) {
      if (error.code === 'ENOENT') return undefined
      throw error
    }
    return JSON.parse(text).entries
  }

  /** Waits until the bots have updated the file a last time: they would create the folder again. */
  async close() {
    const unsaved = () => ['journal', 'journal.old'].some((name) => existsSync(`${this.path}.${name}`))
    for (let i = 0; i < 100 && unsaved(); i++) await delay(10)
    const remove = () => rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 })
    process.on('exit', remove)
    remove()
  }
}

const isOthers = ({ botPid }) => botPid !== process.pid
