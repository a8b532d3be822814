/**
 * How long registerProcess and unregisterProcess block the event loop, with 1 to 10,000 live
 * entries in the registry, and how far the file lags behind.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { captureStartToken, registerProcess, unregisterProcess } from 'spawn-owned'
import { PlainRegistry } from '../lib/plain-registry.mjs'
import { pick } from '../lib/runs.mjs'
import { seedEntries, writeRegistry } from '../lib/seed.mjs'
import { percentile } from '../lib/stats.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { absoluteRow, ratioRow } from '../report/rows.mjs'

const SIZES = [1, 10, 100, 1000, 10_000]
const OWN = 1000
const MOST = SIZES.at(-1)
const PAIRS_A_TURN = 40
const FLAT = 1.5
const BEHIND_MS = 250
const PLAIN = 'a plain JSON file'

export const name = 'register'
export const worker = { prepare, pairs, lags }

export async function bench({ quick, progress }) {
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  const sizes = quick ? [1, 100, MOST] : SIZES
  const own = quick ? 300 : OWN
  const ours = [...sizes.map((size) => ({ size })), { size: 1, own }]
  const subjects = [
    ...ours.map(({ size, own }) => bot(directory, OURS, size, own)),
    ...sizes.map((size) => bot(directory, PLAIN, size)),
  ]
  try {
    return await withWorkers(import.meta.url, subjects, { residentMb: 50 }, async (workers) => {
      const ownerToken = captureStartToken(process.pid)
      for (const { call } of workers) await call('prepare', { ownerToken })
      await interleave(workers, 1, 'pairs', { count: PAIRS_A_TURN })
      const samples = await interleave(workers, quick ? 3 : 12, 'pairs', { count: PAIRS_A_TURN }, 90_000)
      progress('how far the file lags behind')
      const count = quick ? 5 : 20
      const behind = await interleave([workers[0], workers[sizes.length - 1]], 2, 'lags', { count })
      return [...costRows(sizes, own, samples), ...lagRows(behind)]
    })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function bot(directory, kind, size, own = 0) {
  const label = labelOf(kind, size, own)
  const task = {
    path: join(directory, label.replaceAll(/\W+/g, '-'), 'process-registry.json'),
    kind,
    size,
    own,
  }
  return {
    name: kind === OURS ? OURS : NODE,
    label,
    env: { BENCH_REGISTER: JSON.stringify(task), SPAWN_OWNED_REGISTRY: task.path },
  }
}

function labelOf(kind, size, own = 0) {
  return `${kind}, ${size} entries${own > 0 ? `, ${own} of its own` : ''}`
}

function costRows(sizes, own, samples) {
  const both = pick(samples, 'both')
  const one = both[labelOf(OURS, 1)]
  const halves = (label) =>
    ['register', 'unregister'].map((half) => `${half} ${spread(pick(samples, half)[label])}`).join(', ')
  const rows = sizes.slice(1).map((size) =>
    ratioRow({
      bench: name,
      what: `register + unregister block the event loop, ${counted(size)} live entries`,
      against: 'itself, 1 entry',
      target: size === MOST ? { atMost: FLAT } : undefined,
      ours: both[labelOf(OURS, size)],
      theirs: one,
      note: halves(labelOf(OURS, size)),
    }),
  )
  rows.push(
    ratioRow({
      bench: name,
      what: `the same, ${counted(own)} live entries, all of them its own`,
      against: 'itself, 1 entry',
      ours: both[labelOf(OURS, 1, own)],
      theirs: one,
      note: halves(labelOf(OURS, 1, own)),
    }),
    ...sizes.map((size) =>
      ratioRow({
        bench: name,
        what: `the same, ${counted(size)} live ${size === 1 ? 'entry' : 'entries'}`,
        against: PLAIN,
        ours: both[labelOf(OURS, size)],
        theirs: both[labelOf(PLAIN, size)],
      }),
    ),
  )
  return rows
}

function spread(samples) {
  const sorted = [...samples].sort((a, b) => a - b)
  return `${[0.5, 0.99].map((share) => percentile(sorted, share).toFixed(3)).join(' / ')} ms`
}

function lagRows(behind) {
  return Object.entries(behind).map(([label, samples]) =>
    absoluteRow({
      bench: name,
      what: `the file is behind by at most, ${counted(label === labelOf(OURS, 1) ? 1 : MOST)} live entries`,
      target: { atMost: BEHIND_MS },
      value: Math.max(...samples),
      unit: 'ms',
      samples,
      note: 'registered until it is in the file, unregistered until it is not; while the bot goes on registering',
    }),
  )
}

function counted(number) {
  return number.toLocaleString('en')
}

// ---- in the measured bot ----------------------------------------------------------------------

const task = JSON.parse(process.env.BENCH_REGISTER ?? '{}')
let registry
/** The process that is registered and unregistered, which does nothing, and two more. */
let children

const kinds = {
  [OURS]: () => ({
    register: (pid) => registerProcess({ pid, sessionId: 'session-1' }),
    unregister: (pid) => unregisterProcess({ pid }),
  }),
  [PLAIN](entries) {
    const plain = new PlainRegistry(task.path, entries)
    return {
      register: (pid) => plain.register(pid, 'session-1'),
      unregister: (pid) => plain.unregister(pid),
    }
  },
}

/**
 * All entries except one belong to another, live bot. The remaining one is that of the registered
 * process.
 */
async function prepare(_start, { ownerToken }) {
  mkdirSync(join(task.path, '..'), { recursive: true })
  const others = seedEntries(task.size - 1, ownerToken)
  if (others.length > 0) writeRegistry(task.path, others)
  registry = kinds[task.kind](others.map(oldFields))
  children = Array.from({ length: 2 }, () => idle())
  if (task.own > 0) for (const pid of await manyIdle(task.own - 1)) registry.register(pid)
}

function oldFields({ pid, startedAt, sessionId, botPid, commandPreview }) {
  return { pid, startedAt, sessionId, botPid, commandPreview }
}

/** Ends with this bot. */
function idle() {
  return spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'], detached: true })
}

/** Like `idle`, but many processes from one shell: all read the same pipe, which gets no data. */
async function manyIdle(count) {
  const line =
    'exec 3<&0; i=0; while [ $i -lt "$1" ]; do cat <&3 >/dev/null & echo $!; i=$((i+1)); done; exec cat'
  const shell = spawn('sh', ['-c', line, 'sh', String(count)], { stdio: ['pipe', 'pipe', 'ignore'] })
  let text = ''
  while (text.split('\n').length <= count) text += (await once(shell.stdout, 'data'))[0]
  return text.trim().split('\n').map(Number)
}

/** Spread over time, so that the file is being updated during some of them. */
async function pairs(_start, { count }) {
  const [{ pid }] = children
  const samples = []
  for (let i = 0; i < count; i++) {
    const before = performance.now()
    registry.register(pid)
    const between = performance.now()
    registry.unregister(pid)
    const after = performance.now()
    samples.push({ register: between - before, unregister: after - between, both: after - before })
    await delay(1 + (i % 9))
  }
  await upToDate()
  return samples
}

/** Waits until the file is up to date, so that remaining work does not disturb the next bot. */
async function upToDate() {
  if (task.kind !== OURS) return
  while (existsSync(`${task.path}.journal`) || existsSync(`${task.path}.journal.old`)) await delay(5)
}

async function lags(_start, { count }) {
  const [subject, other] = children
  const samples = []
  let going = true
  const noise = (async () => {
    while (going) {
      registry.register(other.pid)
      await delay(3)
      registry.unregister(other.pid)
      await delay(3)
    }
  })()
  for (let i = 0; i < count; i++) {
    registry.register(subject.pid)
    samples.push(await until((text) => text.includes(`"pid":${subject.pid},`)))
    registry.unregister(subject.pid)
    samples.push(await until((text) => !text.includes(`"pid":${subject.pid},`)))
  }
  going = false
  await noise
  await upToDate()
  return samples
}

/**
 * Milliseconds until the file contains the change: until it was renamed into place, not until it
 * was read.
 */
async function until(says) {
  const before = performance.now()
  let seen
  for (;;) {
    const now = statSync(task.path, { throwIfNoEntry: false })?.ino
    const at = performance.now()
    if (now !== undefined && now !== seen) {
      seen = now
      if (says(readFileSync(task.path, 'utf8'))) return at - before
    }
    if (at - before > 10_000) throw new Error('the registry file was not updated within 10 s')
    await delay(1)
  }
}
