import { accessSync, constants, existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { release, tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { version } from '../../../package.json'
import { readFile } from '../files.js'
import type { Context, Outcome } from '../terminal.js'
import { type Colour, printable } from '../text.js'

interface Check {
  readonly name: string
  /** `missing`: it would be nice to have. */
  readonly status: 'ok' | 'missing' | 'warning' | 'failed'
  readonly detail: string
}

const MARKS: Record<Check['status'], readonly [mark: string, colour: Colour]> = {
  ok: ['ok', 'green'],
  missing: ['--', 'dim'],
  warning: ['!!', 'yellow'],
  failed: ['XX', 'red'],
}

export async function doctor(context: Context): Promise<Outcome> {
  const checks = [versions(), ...offers(context), await trial(context), ...(await registry(context))]
  const isWell = checks.every(({ status }) => status !== 'failed')
  if (context.json) {
    context.printJson({ ok: isWell, checks })
  } else {
    const longest = Math.max(...checks.map(({ name }) => name.length))
    for (const { name, status, detail } of checks) {
      const [mark, colour] = MARKS[status]
      context.print(`${context.paint(colour, mark)}  ${name.padEnd(longest)}  ${printable(detail)}`)
    }
  }
  return isWell ? 0 : 1
}

function versions(): Check {
  const { bun, deno, node } = process.versions
  const runtime = bun ? `Bun ${bun}` : deno ? `Deno ${deno}` : `Node ${node}`
  return {
    name: 'versions',
    status: 'ok',
    detail: `spawn-owned ${version}, ${runtime}, ${process.platform} ${process.arch}, kernel ${release()}`,
  }
}

function offers({ owned }: Context): Check[] {
  return owned.capabilities().map(({ name, available, why }) => ({
    name,
    status: available ? 'ok' : 'missing',
    detail: why,
  }))
}

/** Keeper, registry and streams at work, where nobody else's are. */
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
      detail: `a command was started, and gone after ${Math.round(performance.now() - from)} ms`,
    }
  } catch (error) {
    return { name: 'trial', status: 'failed', detail: (error as Error).message }
  } finally {
    if (folder) removeAtExit(folder)
  }
}

/** When its registry is written to no more. */
function removeAtExit(folder: string): void {
  process.once('exit', () => {
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
    } catch {
      // It is empty, but for what is still open on Windows.
    }
  })
}

async function registry({ supervisor }: Context): Promise<Check[]> {
  const path = supervisor.registryPath
  const folder = dirname(path)
  if (!existsSync(path)) {
    const detail = `${path} does not exist yet: it is made when something is started`
    return [{ name: 'registry', status: 'ok', detail }]
  }
  const checks: Check[] = []
  try {
    const { entries } = JSON.parse(readFile(path)) as { entries: unknown[] }
    accessSync(path, constants.R_OK | constants.W_OK)
    accessSync(folder, constants.W_OK)
    const journal = statSync(`${path}.journal`, { throwIfNoEntry: false })?.size ?? 0
    const detail = `${path}: ${entries.length} entries, ${journal} bytes of journal`
    checks.push({ name: 'registry', status: 'ok', detail })
  } catch (error) {
    checks.push({ name: 'registry', status: 'failed', detail: `${path}: ${(error as Error).message}` })
  }
  checks.push(...whoWritesIn(folder))
  const corrupt = namesIn(folder).filter((name) => name.startsWith(`${basename(path)}.corrupt-`))
  if (corrupt.length > 0) {
    const detail = `${corrupt.join(', ')}: could not be read once and was set aside; look at it, then delete it`
    checks.push({ name: 'set aside', status: 'warning', detail })
  }
  const orphans = (await supervisor.survey().catch(() => [])).filter(({ owner }) => owner === 'dead')
  if (orphans.length > 0) {
    const detail = `${orphans.length} runs have no bot any more: spawn-owned reap --dry-run shows what would be done`
    checks.push({ name: 'orphans', status: 'warning', detail })
  }
  return checks
}

/** Their files are refused; but they can move ours away, and put theirs in the way. */
function whoWritesIn(folder: string): Check[] {
  const [OTHERS, STICKY] = [0o022, 0o1000]
  const meta = statSync(folder, { throwIfNoEntry: false })
  if (!meta || process.platform === 'win32') return []
  const isOthers = meta.uid !== 0 && meta.uid !== process.geteuid?.()
  if (!isOthers && ((meta.mode & OTHERS) === 0 || (meta.mode & STICKY) !== 0)) return []
  const who = isOthers ? `it is user ${meta.uid}'s` : 'its mode lets others write in it'
  const detail = `${folder}: ${who}, so others can keep bots from working: give it to the bot's user, mode 0700 or 0755`
  return [{ name: 'folder', status: 'warning', detail }]
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
