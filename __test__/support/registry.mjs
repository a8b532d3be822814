// A registry in a folder of its own, looked at as anybody may: by reading its files.
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

/** How far the file may be behind. */
export const BEHIND_MS = 250

const opened = []

/** A registry for the test `t`, which ends what is left of its runs. The folder goes when all tests are through. */
export function openRegistry(t, name = join('data', 'process-registry.json')) {
  const registry = new RegistryFiles(mkdtempSync(join(tmpdir(), 'registry-files-')), name)
  opened.push(registry)
  t.after(() => registry.cancelAll())
  return registry
}

after(async () => {
  await Promise.all(opened.map((registry) => registry.settled(2000).catch(() => {})))
  // A checkpoint may still be due that finds nothing to write; it makes the folder again, at the latest when the process ends.
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

  /** A supervisor of this process on it. What is left of its runs is cancelled with the test. */
  supervise(options) {
    const supervisor = createSupervisor({ registryPath: this.path, ...options })
    this.#supervisors.push(supervisor)
    return supervisor
  }

  /** What the file says now; it is an error if that is no JSON. `undefined`: there is no file. */
  read() {
    const text = textOf(this.path)
    return text === undefined ? undefined : JSON.parse(text)
  }

  /** Resolves when what could not be read is aside, as the `count`th, and a file that can be is in its place. */
  mended(count) {
    const isSo = () => {
      try {
        return this.setAside().length === count && this.read()
      } catch {
        return false
      }
    }
    return until(isSo, `${count} set aside, and a file in order`)
  }

  entries() {
    return this.read()?.entries ?? []
  }

  entry(runId) {
    return this.entries().find((entry) => entry.runId === runId)
  }

  /**
   * Everything that is on disk, for those who look for a word in it. Lines only ever move from the journal to `.old` to the file:
   * read in that order, none is missed because it moved meanwhile.
   */
  everything() {
    return [this.journal, this.old, this.path].map((path) => textOf(path) ?? '').join('\n')
  }

  /** Puts something in a file's place before anybody has used the registry, or while they do. */
  write(content, path = this.path) {
    mkdirSync(this.folder, { recursive: true })
    writeFileSync(path, content, { mode: 0o600 })
  }

  files() {
    return existsSync(this.folder) ? readdirSync(this.folder).sort() : []
  }

  /** What was set aside because it could not be understood. */
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

  /** Resolves with the entry of a run once the file has it, in the state asked for. */
  has(runId, state, limitMs) {
    const found = () => {
      const entry = this.entry(runId)
      return entry && (state === undefined || entry.state === state) ? entry : undefined
    }
    return until(found, `the file says ${runId} is ${state ?? 'there'}`, limitMs)
  }

  lacks(runId, limitMs) {
    return until(() => !this.entry(runId), `the file is without ${runId}`, limitMs)
  }

  /** The run is known to run, and that was the last to be written: nobody is about to replace the file. */
  async atRest(runId) {
    await this.has(runId, 'running')
    await this.settled()
  }

  /** Everything that was appended is in the file. */
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

/** Resolves with the first thing that is true of what `look` returns, or rejects after the limit, far beyond any promise. */
export async function until(look, what, limitMs = 30_000) {
  const from = performance.now()
  for (;;) {
    const seen = look()
    if (seen) return seen
    if (performance.now() - from > limitMs) throw new Error(`not after ${limitMs} ms: ${what}`)
    await delay(2)
  }
}

/** A line of the journal as it is written: its length, a space, JSON. */
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
