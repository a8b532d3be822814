/** One registry for all rounds of a loop, as a bot's would be that crashes a thousand times. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { createSupervisor } from 'spawn-owned'
import { Wrong } from './loop.mjs'

/** How far the file may be behind, on a machine that has nothing else to do. Here it has. */
const BEHIND_MS = 1000

export class StressRegistry {
  #folder = mkdtempSync(join(tmpdir(), 'spawn-owned-stress-'))

  constructor() {
    this.path = join(this.#folder, 'process-registry.json')
    this.supervisor = createSupervisor({ registryPath: this.path })
    this.supervisor.on('event', ({ type, kind, message }) => {
      // A bot that was killed while writing leaves half a line. That is what the journal is made for.
      if (type === 'registry' && kind !== 'torn') this.trouble ??= `${kind}: ${message}`
    })
  }

  /** Entries of bots that are gone, as the next one would do it. */
  async reap() {
    const report = await this.supervisor.reapOrphans(process.pid)
    if (report.failed.length > 0) throw new Wrong(`could not be reaped: ${JSON.stringify(report.failed)}`)
    return report
  }

  /** Nothing but our own is in the registry, and the file says so too, in time. */
  async mustBeEmpty(because) {
    // Unlike list() it also sees runs that have ended and of which nobody has taken note.
    const { decisions } = await this.supervisor.reapOrphans(process.pid, { dryRun: true })
    const left = decisions.map(({ record }) => record).filter(isOthers)
    if (left.length > 0) throw new Wrong(`${left.length} entries left ${because}: ${JSON.stringify(left)}`)
    const giveUpAt = performance.now() + BEHIND_MS
    while ((this.read()?.filter(isOthers) ?? []).length > 0) {
      if (performance.now() > giveUpAt) throw new Wrong(`the file is behind ${because}\n${this.#files()}`)
      await delay(5)
    }
    if (this.trouble) throw new Wrong(this.trouble)
  }

  /** Files that nobody needs any more: what was being written when its writer was killed. */
  litter() {
    return readdirSync(this.#folder).filter(
      (name) => !/\.json(?:\.lock|\.journal|\.journal\.old)?$/.test(name),
    )
  }

  #files() {
    const names = readdirSync(this.#folder)
    return names.map((name) => `--- ${name}\n${readFileSync(join(this.#folder, name), 'utf8')}`).join('\n')
  }

  /** The file's entries. It is JSON at every instant, or this throws. `undefined`: there is none yet. */
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

  /** Whoever has written to it brings the file up to date once more, and would make the folder again. */
  async close() {
    const unsaved = () => ['journal', 'journal.old'].some((name) => existsSync(`${this.path}.${name}`))
    for (let i = 0; i < 100 && unsaved(); i++) await delay(10)
    const remove = () => rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 })
    process.on('exit', remove)
    remove()
  }
}

const isOthers = ({ botPid }) => botPid !== process.pid
