// Owned runs and plain children live in one bot without disturbing each other. Neither kind leaves
// descriptors, threads or processes behind.
import { exec, execFile, execFileSync, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { spawn, spawnOwned } from '../fixtures/side-by-side.mjs'
import { assert, describe, script, test } from '../support/prelude.mjs'
import {
  isMacos,
  isNode,
  isWindows,
  isWine,
  linuxOnly,
  NO_CHANNELS,
  NO_PROC,
  NO_SIGNALS,
  nodeOnly,
  posixOnly,
} from '../support/system.mjs'

const options = { timeout: 60_000 }

/**
 * Counts the bot's descriptors, threads and children. Reading a directory opens one descriptor, in
 * every call alike.
 */
function resources() {
  // macOS has no /proc to count them in.
  if (isMacos) return {}
  if (isWindows) {
    const counts = execFileSync('counts', [String(process.pid)], { encoding: 'utf8' })
    const [descriptors, , children] = counts.trim().split(' ').map(Number)
    // Not the threads: Windows keeps some thread-pool threads that have waited for a process.
    return { descriptors, children }
  }
  const threads = readdirSync('/proc/self/task')
  const children = threads.flatMap((thread) =>
    textOf(`/proc/self/task/${thread}/children`).split(' ').filter(Boolean),
  )
  return {
    descriptors: readdirSync('/proc/self/fd').length,
    // Bun and Deno start more threads of their own under load.
    threads: isNode ? threads.length : 0,
    children: children.filter((pid) => !textOf(`/proc/${pid}/cmdline`).includes('zygote')).length,
  }
}

/** The text of a file in /proc. Empty if its thread or process has ended since it was listed. */
function textOf(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/**
 * Bun and Deno open a few descriptors once for themselves. A leak of a run would show hundreds of
 * times.
 */
const SLACK = isNode ? 0 : 3

/**
 * Waits until the counts are back at `before`. The bot refills its stock of keepers in the
 * background.
 */
async function settled(before) {
  const more = () => Object.entries(resources()).filter(([name, count]) => count > before[name] + SLACK)
  for (let round = 0; round < 1500 && more().length > 0; round++) await delay(20)
  assert.deepEqual(more(), [], `more than before: ${JSON.stringify(before)}`)
}

const closed = (child) => new Promise((resolve) => child.on('close', resolve))

/** Runs everything that is created on first use, then returns the counts. */
async function warmedUp() {
  for (let i = 0; i < 5; i++) {
    await Promise.all(
      [spawn, spawnOwned].map((start) => once(start('sh', ['-c', 'echo; echo >&2']), 'close')),
    )
  }
  await promisify(execFile)('true')
  let before = resources()
  for (let quiet = 0; quiet < 5; quiet++) {
    await delay(20)
    const now = resources()
    if (JSON.stringify(now) !== JSON.stringify(before)) quiet = 0
    before = now
  }
  return before
}

/**
 * Under Wine, Node's own `spawn` sometimes fails with UNKNOWN if there are many, and every start
 * takes ten times as long.
 */
const MANY = isWine ? 60 : 600

test('many owned runs and plain children at once all exit as expected', options, async () => {
  const before = await warmedUp()
  const SIGNALS = ['SIGTERM', 'SIGKILL', 'SIGINT']
  const expected = []
  const seen = []
  const ends = []
  let done = 0
  for (let i = 0; i < MANY; i++) {
    const start = i % 2 ? spawn : spawnOwned
    const signal = i % 5 === 0 && !isWindows ? SIGNALS[i % 3] : null
    const code = signal ? null : i % 200
    // Some write, some have no streams, some exit at once, some wait for the end of stdin.
    const stdio = i % 3 === 0 ? 'ignore' : ['pipe', 'pipe', 'ignore']
    const line = signal
      ? `kill -${signal.slice(3)} $$`
      : i % 7 && stdio !== 'ignore'
        ? `cat; exit ${code}`
        : `exit ${code}`
    // If a cancel waited out the grace of a tree that is already gone, this test would not end.
    const child = start('sh', ['-c', line], { stdio, graceMs: 1e8 })
    ends.push(child.wait?.())
    child.stdin?.on('error', () => {}).end('through')
    let text = ''
    child.stdout?.on('data', (chunk) => {
      text += chunk
    })
    expected[i] = [code, signal, line.startsWith('cat') ? 'through' : '']
    child.on('close', (...end) => {
      seen[i] = [...end, text]
      done++
    })
  }
  while (done < MANY) await delay(5)
  assert.deepEqual(seen, expected)
  await Promise.all(ends)
  await settled(before)
})

test('every other function of child_process works as before', options, async () => {
  const owned = Array.from({ length: 20 }, () => spawnOwned('cat'))
  const seen = await Promise.all([
    promisify(exec)('echo exec').then(({ stdout, stderr }) => ({ stdout: stdout.replace('\r', ''), stderr })),
    promisify(execFile)('echo', ['execFile']),
    once(
      fork(script('answers-messages.mjs')).on('spawn', function () {
        this.send('exit')
      }),
      'exit',
    ),
  ])
  assert.deepEqual(seen, [{ stdout: 'exec\n', stderr: '' }, { stdout: 'execFile\n', stderr: '' }, [7, null]])
  assert.equal(execFileSync('echo', ['sync'], { encoding: 'utf8' }), 'sync\n')
  const { status, signal } = spawnSync('sh', ['-c', 'kill -TERM $$'])
  assert.deepEqual([status, signal], isWindows ? [1, null] : [null, 'SIGTERM'])
  const ends = await Promise.all(owned.map((child) => child.cancel()))
  assert.deepEqual(new Set(ends.map(({ reason }) => reason)), new Set(['manual-cancel']))
})

test('the bot still gets SIGCHLD', posixOnly(NO_SIGNALS, options), async (t) => {
  let received = 0
  const listener = () => received++
  process.on('SIGCHLD', listener)
  t.after(() => process.off('SIGCHLD', listener))
  await once(spawn('true'), 'close')
  while (received === 0) await delay(1)
  await spawnOwned('true').wait()
  await once(spawn('true'), 'close')
})

describe('in a soak test', linuxOnly(NO_PROC), () => {
  const kinds = {
    'short runs': () => spawnOwned('true'),
    'runs with output': () =>
      spawnOwned('echo', ['x']).on('spawn', function () {
        this.stdout.resume()
      }),
    'runs that cannot be started': () => spawnOwned('nonexistent-command').on('error', () => {}),
    'cancelled runs': () =>
      spawnOwned('cat').on('spawn', function () {
        this.cancel()
      }),
    'runs with a channel': () => spawnOwned('true', { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] }),
    'runs whose streams are never touched': () => spawnOwned('sh', ['-c', 'echo out; echo err >&2']),
    'refused starts': () => {
      assert.throws(() => spawnOwned('true', { stdio: ['ignore', 9999] }), { code: 'EBADF' })
      if (isWine) return spawnOwned('true')
      assert.throws(() => spawnOwned('true', ['x'.repeat(200_000)]), {
        code: isWindows ? 'ENAMETOOLONG' : 'E2BIG',
      })
      return spawnOwned('true')
    },
  }
  for (const [what, start] of Object.entries(kinds)) {
    const runs = (what === 'short runs' ? 500 : 100) / (isWine ? 10 : 1)
    const where = what === 'runs with a channel' ? nodeOnly(NO_CHANNELS, options) : options
    test(`${runs} ${what} leave descriptors, threads and children as before`, where, async () => {
      const before = await warmedUp()
      for (let i = 0; i < runs; i += 10) {
        const batch = Array.from({ length: 10 }, start)
        await Promise.all(batch.map((child) => Promise.all([child.wait(), closed(child)])))
      }
      await settled(before)
    })
  }
})
