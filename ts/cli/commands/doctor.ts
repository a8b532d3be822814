import {
  accessSync,
  constants,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
} from 'node:fs'
import { release, tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { version } from '../../../package.json'
import type { Context, Outcome } from '../context.js'
import { readFile } from '../regular-file.js'
import {
  type Check,
  checkLimits,
  checkNode,
  checkNoexec,
  checkProc,
  checkWatchers,
  parseMounts,
  type UserLimits,
} from '../system-checks.js'
import { type Colour, counted, printable, wrapped } from '../text.js'

const MARKS: Record<Check['status'], readonly [mark: string, colour: Colour]> = {
  ok: ['ok', 'green'],
  missing: ['--', 'dim'],
  warning: ['!!', 'yellow'],
  failed: ['XX', 'red'],
}

export async function doctor(context: Context): Promise<Outcome> {
  const checks = [...versions(), ...systemChecks(), ...(await libraryChecks(context))]
  const isWell = checks.every(({ status }) => status !== 'failed')
  if (context.json) {
    context.printJson({ ok: isWell, checks })
  } else {
    const longest = Math.max(...checks.map(({ name }) => name.length))
    for (const check of checks) context.print(...linesOf(check, longest, context))
  }
  return isWell ? 0 : 1
}

function linesOf({ name, status, detail, advice }: Check, longest: number, context: Context): string[] {
  const [mark, colour] = MARKS[status]
  const indent = longest + 6
  const [first = '', ...others] = [detail, ...(advice ? [`What to do: ${advice}`] : [])].flatMap((text) =>
    wrapped(printable(text), context.width - indent),
  )
  return [
    `${context.paint(colour, mark.padEnd(2))}  ${name.padEnd(longest)}  ${first}`,
    ...others.map((line) => ' '.repeat(indent) + line),
  ]
}

/** Checks what needs the native part. If it cannot be loaded, the error says what to do. */
async function libraryChecks(context: Context): Promise<Check[]> {
  try {
    void context.owned
  } catch (error) {
    return [{ name: 'package', status: 'failed', detail: (error as Error).message }]
  }
  return [
    ...registryPlace(context.supervisor.registryPath),
    ...capabilities(context),
    await trial(context),
    ...(await registry(context)),
  ]
}

function versions(): Check[] {
  const { bun, deno, node } = process.versions
  const runtime = bun ? `Bun ${bun}` : deno ? `Deno ${deno}` : `Node ${node}`
  const system = `${process.platform} ${process.arch}, kernel ${release()}`
  return [
    { name: 'versions', status: 'ok', detail: `spawn-owned ${version}, ${runtime}, ${system}` },
    ...(bun || deno ? [] : checkNode(node, Date.now())),
  ]
}

const isRoot = () => process.geteuid?.() === 0
const mounts = () => parseMounts(attempt(() => readFileSync('/proc/self/mountinfo', 'utf8')) ?? '')

function systemChecks(): Check[] {
  if (process.platform === 'win32') return []
  const report = attempt(() => process.report.getReport() as { userLimits?: UserLimits })
  const limits = checkLimits(report?.userLimits ?? {}, isRoot())
  if (process.platform !== 'linux') return limits
  const self = attempt(() => readlinkSync('/proc/self'))
  return [
    checkProc({ self, pid: process.pid, isRoot: isRoot(), mounts: mounts() }),
    ...checkNoexec('package', __dirname, mounts()),
    ...limits,
  ]
}

/** Checks the file system of the registry, and whether file watchers see it. */
function registryPlace(registryPath: string): Check[] {
  const folder = dirname(registryPath)
  return [
    ...checkNoexec('registry', folder, mounts()),
    ...(attempt(() => checkWatchers(registryPath, process.cwd(), ignoredByNodemon())) ?? []),
  ]
}

/** Returns the patterns of `ignore` in nodemon.json and package.json. */
function ignoredByNodemon(): string[] {
  const read = (name: string) => attempt(() => JSON.parse(readFile(name)))
  const patterns = [read('nodemon.json')?.ignore, read('package.json')?.nodemonConfig?.ignore]
  return patterns.flat().filter((pattern) => typeof pattern === 'string')
}

function attempt<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

function capabilities({ owned }: Context): Check[] {
  return owned.capabilities().map(({ name, available, why }) => ({
    name,
    status: available ? 'ok' : 'missing',
    detail: why,
  }))
}

/** Starts a command in a temporary registry, to test keeper and registry. */
async function trial({ owned }: Context): Promise<Check> {
  let folder: string | undefined
  try {
    folder = mkdtempSync(join(tmpdir(), 'spawn-owned-doctor-'))
    const supervisor = owned.createSupervisor({ registryPath: join(folder, 'registry.json') })
    const from = performance.now()
    const child = supervisor.spawnOwned(process.execPath, ['--version'], {
      stdio: 'ignore',
      timeoutMs: 30_000,
    })
    const failure = new Promise<Error>((resolve) => child.once('error', resolve))
    const end = await Promise.race([child.wait(), failure])
    if (end instanceof Error) throw end
    if (end.reason !== 'exit' || end.exitCode !== 0) throw new Error(end.message)
    return {
      name: 'trial',
      status: 'ok',
      detail: `a command started and ended within ${Math.round(performance.now() - from)} ms`,
    }
  } catch (error) {
    return { name: 'trial', status: 'failed', detail: (error as Error).message }
  } finally {
    if (folder) removeAtExit(folder)
  }
}

/** Removes the folder at exit, after the last write to its registry. */
function removeAtExit(folder: string): void {
  process.once('exit', () => {
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
    } catch {
      // Windows does not remove files that are still open.
    }
  })
}

async function registry({ supervisor }: Context): Promise<Check[]> {
  const path = supervisor.registryPath
  const folder = dirname(path)
  if (!existsSync(path)) {
    const detail = `${path} does not exist yet. The first run creates it.`
    return [{ name: 'registry', status: 'ok', detail }]
  }
  const checks: Check[] = []
  try {
    const { entries } = JSON.parse(readFile(path)) as { entries: unknown[] }
    accessSync(path, constants.R_OK | constants.W_OK)
    accessSync(folder, constants.W_OK)
    const journal = statSync(`${path}.journal`, { throwIfNoEntry: false })?.size ?? 0
    const detail = `${path}: ${counted(entries.length, 'entry', 'entries')}, ${counted(journal, 'byte')} of journal`
    checks.push({ name: 'registry', status: 'ok', detail })
  } catch (error) {
    checks.push({
      name: 'registry',
      status: 'failed',
      detail: `${path} cannot be used: ${(error as Error).message}`,
      advice:
        'Make the file and its folder readable and writable for this user. If its content is damaged, move it away: the next run creates a new one.',
    })
  }
  checks.push(...whoWritesIn(folder))
  const corrupt = namesIn(folder).filter((name) => name.startsWith(`${basename(path)}.corrupt-`))
  if (corrupt.length > 0) {
    const detail = `${corrupt.join(', ')}: could not be read and was set aside.`
    checks.push({ name: 'set aside', status: 'warning', detail, advice: 'Inspect it, then delete it.' })
  }
  const orphans = (await supervisor.survey().catch(() => [])).filter(({ owner }) => owner === 'dead')
  if (orphans.length > 0) {
    const detail = `${counted(orphans.length, 'run')} in the registry without a living bot.`
    const advice = '"spawn-owned reap --dry-run" shows what can be done, "spawn-owned reap" does it.'
    checks.push({ name: 'orphans', status: 'warning', detail, advice })
  }
  return checks
}

/**
 * Warns if other users can write in the folder of the registry.
 *
 * The registry refuses files of other users. But they can move its files, and create files with the
 * same names.
 */
function whoWritesIn(folder: string): Check[] {
  const [OTHERS, STICKY] = [0o022, 0o1000]
  const meta = statSync(folder, { throwIfNoEntry: false })
  if (!meta || process.platform === 'win32') return []
  const isOthers = meta.uid !== 0 && meta.uid !== process.geteuid?.()
  if (!isOthers && ((meta.mode & OTHERS) === 0 || (meta.mode & STICKY) !== 0)) return []
  const why = isOthers ? `user ${meta.uid} owns it` : 'its mode lets other users write in it'
  const detail = `${folder}: ${why}, so other users can stop bots from working.`
  const advice = "Make the bot's user its owner, with mode 0700 or 0755."
  return [{ name: 'folder', status: 'warning', detail, advice }]
}

const namesIn = (folder: string) => attempt(() => readdirSync(folder)) ?? []
