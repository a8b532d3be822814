// A registry in its own folder. Its content is read from its files, without the product.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { createSupervisor } from 'spawn-owned'
import { removeFolder } from './system.mjs'

/** How far the file may lag behind. */
export const BEHIND_MS = 250

const opened = []

/**
 * A registry for the test `t`, which ends the runs that are left. The folder is removed after all
 * tests.
 */
export function openRegistry(t, name = join('data', 'process-registry.json')) {
  const registry = new RegistryFiles(mkdtempSync(join(tmpdir(), 'registry-files-')), name)
  opened.push(registry)
  t.after(() => registry.cancelAll())
  return registry
}

after(async () => {
  await Promise.all(opened.map((registry) => registry.settled(2000).catch(() => {})))
  // A pending checkpoint may create the folder again, at process exit at the latest.
  process.on('exit', removeAll)
  removeAll()
})

function removeAll() {
  for (const { dir } of opened) removeFolder(dir)
}

class RegistryFiles {
  #supervisors = []

  constructor(dir, name) {
    this.dir = dir
    this.path = join(dir, name)
    this.folder = join(this.path, '..')
    this.journal = `${this.path}.journal`
    this.old = `${this.path}.journal.old`
    this.lock = `${this.path}.lock`
  }

  /**
   * A supervisor of this process on the registry. Its remaining runs are cancelled with the test.
   */
  supervise(options) {
    const supervisor = createSupervisor({ registryPath: this.path, ...options })
    this.#supervisors.push(supervisor)
    return supervisor
  }

  /** The content of the file. Throws if it is not JSON. `undefined`: there is no file. */
  read() {
    const text = textOf(this.path)
    return text === undefined ? undefined : JSON.parse(text)
  }

  /** Resolves when `count` unreadable files are set aside, and a valid file is in place. */
  mended(count) {
    const isSo = () => {
      try {
        return this.setAside().length === count && this.read()
      } catch {
        return false
      }
    }
    return until(isSo, `${count} files are set aside, and the file is valid`)
  }

  entries() {
    return this.read()?.entries ?? []
  }

  entry(runId) {
    return this.entries().find((entry) => entry.runId === runId)
  }

  /**
   * The text of all files of the registry. Lines move only from the journal to `.old` to the file.
   * Reading in that order misses no line that moves meanwhile.
   */
  everything() {
    return [this.journal, this.old, this.path].map((path) => textOf(path) ?? '').join('\n')
  }

  /** Writes a file of the registry, before or while bots use it. */
  write(content, path = this.path) {
    mkdirSync(this.folder, { recursive: true })
    writeFileSync(path, content, { mode: 0o600 })
  }

  files() {
    return existsSync(this.folder) ? readdirSync(this.folder).sort() : []
  }

  /** Files that were set aside because they could not be parsed. */
  setAside() {
    return this.files()
      .filter((name) => name.includes('.corrupt-'))
      .map((name) => join(this.folder, name))
  }

  modes() {
    const mode = (name) => statSync(join(this.folder, name), { throwIfNoEntry: false })?.mode
    return this.files()
      .map((name) => [name, mode(name)])
      .filter(([, bits]) => bits !== undefined)
  }

  /** Resolves with the entry of a run when the file contains it in this state. */
  has(runId, state, limitMs) {
    const found = () => {
      const entry = this.entry(runId)
      return entry && (state === undefined || entry.state === state) ? entry : undefined
    }
    return until(found, `the file has ${runId}, in state ${state ?? 'any'}`, limitMs)
  }

  lacks(runId, limitMs) {
    return until(() => !this.entry(runId), `the file does not have ${runId}`, limitMs)
  }

  /**
   * Resolves when the run is recorded as running and the journal is empty, so that no process is
   * about to replace the file.
   */
  async atRest(runId) {
    await this.has(runId, 'running')
    await this.settled()
  }

  /** Resolves when the file contains everything that was appended. */
  settled(limitMs) {
    return until(() => !existsSync(this.journal) && !existsSync(this.old), 'the journal is empty', limitMs)
  }

  async cancelAll() {
    for (const supervisor of this.#supervisors) await cancelOwn(supervisor).catch(() => {})
  }
}

async function cancelOwn({ list, cancel, instanceId }) {
  const own = list().filter(({ ownerInstanceId }) => ownerInstanceId === instanceId)
  await Promise.all(own.map(({ runId }) => cancel(runId, { graceMs: 0 })))
}

/**
 * Resolves with the first truthy result of `look`, or rejects after the limit, which is far above
 * any promise.
 */
export async function until(look, what, limitMs = 30_000) {
  const from = performance.now()
  for (;;) {
    const seen = look()
    if (seen) return seen
    if (performance.now() - from > limitMs) throw new Error(`not after ${limitMs} ms: ${what}`)
    await delay(2)
  }
}

/** A line of the journal: its length, a space, JSON. */
export function journalLine(change) {
  const json = JSON.stringify(change)
  return `\n${Buffer.byteLength(json)} ${json}\n`
}

function textOf(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (error.code === 'ENOENT') return undefined
    throw error
  }
}
