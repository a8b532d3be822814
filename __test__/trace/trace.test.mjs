// The trace: what SPAWN_OWNED_DEBUG and NODE_DEBUG write, where, and that they harm nothing.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'
import { childrenOf, freshRegistry, startBot, supervise, until } from '../support/bots.mjs'
import { crashed } from '../support/orphans.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import {
  forScripts,
  isLinux,
  isWindows,
  NO_FIFOS,
  NO_PROC,
  NO_USERS,
  posixOnly,
  removeFolder,
} from '../support/system.mjs'

const options = { timeout: 60_000 }
const NEEDS_FIFO = posixOnly(NO_FIFOS, options)
const PACKAGE = pathToFileURL(join(import.meta.dirname, '..', '..', 'dist', 'index.mjs')).href
const LINE = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (addon|zygote|keeper)\[(\d+)\] run=(\S+) (.+)$/

function folder(t) {
  const path = mkdtempSync(join(tmpdir(), 'trace-'))
  t.after(() => removeFolder(path))
  return path
}

/** The lines of a trace, parsed. Fails if a line has another form. */
function parse(content) {
  assert.ok(content === '' || content.endsWith('\n'), 'the last line is complete')
  return content
    .split('\n')
    .slice(0, -1)
    .map((line) => {
      const [, writer, pid, run, step] = line.match(LINE) ?? assert.fail(`not a line of a trace: ${line}`)
      return { writer, pid: Number(pid), run, step, line }
    })
}

/** Asserts that these steps occur in this order: a writer, and the beginning of its step. */
function assertSequence(lines, expected) {
  let at = 0
  for (const [writer, beginning] of expected) {
    const found = lines.findIndex((line, index) => {
      return index >= at && line.writer === writer && line.step.startsWith(beginning)
    })
    const all = lines.map(({ line }) => line).join('\n')
    assert.notEqual(found, -1, `no step "${writer}: ${beginning}" after line ${at} of:\n${all}`)
    at = found + 1
  }
}

/** Starts a run that ignores SIGTERM, cancels it and waits for its end. */
async function startAndCancel(t, bot, more = {}) {
  const witness = openWitness(t)
  const { runId } = await bot.ask('spawn', program('ignores-sigterm'), [witness.path], more)
  await witness.ready(1)
  await until(async () => (await bot.ask('state', runId)) === 'running', 'it is recorded as running')
  const exit = await bot.ask('cancelRun', runId, { graceMs: 50 })
  assert.ok(witness.isGone())
  return exit
}

describe('SPAWN_OWNED_DEBUG=<file>', () => {
  test('traces a cancelled run through addon, zygote and keeper', posixOnly(NO_USERS, options), async (t) => {
    const file = join(folder(t), 'trace.log')
    const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: file } })
    await startAndCancel(t, bot, { runId: 'turn-7', timeoutMs: 1e6 })
    await bot.kill()
    await until(() => readFileSync(file, 'utf8').includes('zygote exits'), 'the helpers have exited')
    const lines = parse(readFileSync(file, 'utf8'))
    const own = lines.filter(({ run }) => run === 'turn-7')
    assertSequence(lines, [
      ['addon', 'the trace of spawn-owned'],
      ['zygote', `zygote of bot ${bot.pid} is ready`],
      ['zygote', 'forked keeper'],
      ['addon', 'registry: intent'],
      ['addon', 'sent the command to exec stub'],
      ['addon', 'exec succeeded'],
      ['addon', 'send Cancel to the keeper'],
      ['keeper', 'received Cancel from the owner'],
      ['zygote', 'the bot is gone'],
      ['zygote', 'zygote exits'],
    ])
    assertSequence(own, [
      ['addon', 'registry: intent'],
      ['addon', 'registry: started'],
      ['addon', 'send Cancel to the keeper'],
      ['keeper', 'received Cancel from the owner'],
      ['keeper', 'lifecycle: cancel (SIGTERM, grace 50 ms): running -> terminating (cancel)'],
      ['keeper', 'signal: SIGTERM to'],
      ['keeper', 'lifecycle: timer: terminating -> killing (cancel)'],
      ['keeper', 'signal: SIGKILL to'],
      ['keeper', 'lifecycle: tree is empty: killing -> over (cancel)'],
      ['keeper', 'send Extinct'],
      ['addon', 'received Extinct from the keeper'],
      ['addon', 'registry: dropped'],
    ])
    assert.deepEqual([...new Set(own.map(({ writer }) => writer))].sort(), ['addon', 'keeper'])
    assert.equal(new Set(lines.filter(({ writer }) => writer === 'addon').map(({ pid }) => pid)).size, 1)
  })

  test('traces the run of a bot on every system', options, async (t) => {
    const file = join(folder(t), 'trace.log')
    const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: file } })
    const { runId } = await bot.ask('spawn', process.execPath, [...forScripts, '-e', ''], { runId: 'short' })
    await bot.ask('wait', runId)
    assertSequence(parse(readFileSync(file, 'utf8')), [
      ['addon', 'registry: intent'],
      ['addon', 'registry: dropped'],
    ])
  })

  test('traces a reap: facts, claim and signals', posixOnly(NO_USERS, options), async (t) => {
    const file = join(folder(t), 'trace.log')
    const orphan = await crashed(t)
    const next = await startBot(t, orphan.path, { env: { SPAWN_OWNED_DEBUG: file } })
    await next.ask('reap')
    const lines = parse(readFileSync(file, 'utf8'))
    assertSequence(
      lines.filter(({ run }) => run === orphan.runId),
      [
        ['addon', 'reap: End('],
        ['addon', 'registry: claimed from'],
        ['addon', 'claim won'],
        ['addon', 'registry: dropped'],
      ],
    )
    assertSequence(lines, [['addon', `signal: SIGTERM to ${orphan.pid}`]])
  })

  test('traces a control client that cancels', posixOnly(NO_USERS, options), async (t) => {
    const file = join(folder(t), 'trace.log')
    const path = freshRegistry()
    const bot = await startBot(t, path, { env: { SPAWN_OWNED_DEBUG: file } })
    const witness = openWitness(t)
    const { runId } = await bot.ask('spawn', program('stays'), [witness.path])
    await witness.ready(1)
    await supervise(path).cancel(runId)
    await bot.ask('wait', runId)
    assertSequence(parse(readFileSync(file, 'utf8')), [
      ['keeper', `control client connected: PID ${process.pid}`],
      ['keeper', 'received Cancel from a control client'],
      ['keeper', 'lifecycle: cancel'],
      ['addon', 'received Extinct from the keeper'],
    ])
  })

  test('creates a file that only its owner can read', posixOnly(NO_USERS, options), async (t) => {
    const file = join(folder(t), 'trace.log')
    const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: file } })
    await startAndCancel(t, bot)
    assert.equal(statSync(file).mode & 0o777, 0o600)
  })

  test(
    'contains no key, no argument and no variable of the command',
    posixOnly(NO_USERS, options),
    async (t) => {
      const [file, cookie] = ['trace.log', 'cookie'].map((name) => join(folder(t), name))
      const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: file } })
      const { runId } = await bot.ask(
        'spawn',
        'sh',
        ['-c', `echo $SPAWN_OWNED_RUN > ${cookie}`, 'S3CRET-ARG'],
        {
          env: { PATH: process.env.PATH, TOKEN: 'S3CRET-ENV' },
          runId: 'discreet',
        },
      )
      await bot.ask('wait', runId)
      const key = readFileSync(cookie, 'utf8').match(/discreet:.*?([0-9a-f]{16,})/)?.[1]
      assert.ok(key, readFileSync(cookie, 'utf8'))
      const content = readFileSync(file, 'utf8')
      for (const secret of [key, 'S3CRET']) assert.ok(!content.includes(secret), secret)
      assert.ok(content.includes('run=discreet'))
    },
  )

  test('is not open in the command, whatever descriptors it gets', posixOnly(NO_PROC, options), async (t) => {
    if (!isLinux) return t.skip(NO_PROC)
    const [file, seen] = ['trace.log', 'seen'].map((name) => join(folder(t), name))
    const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: file } })
    const stdio = ['ignore', 'ignore', 'ignore', ...Array(12).fill('ignore')]
    const { runId } = await bot.ask('spawn', 'sh', ['-c', `ls -l /proc/self/fd > ${seen}`], { stdio })
    await bot.ask('wait', runId)
    assert.ok(!readFileSync(seen, 'utf8').includes(file), readFileSync(seen, 'utf8'))
    parse(readFileSync(file, 'utf8'))
  })

  test(
    'is inherited by a bot in a run, which appends to the same file',
    posixOnly(NO_USERS, options),
    async (t) => {
      const file = join(folder(t), 'trace.log')
      const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: file } })
      const inner = `import { spawnOwned } from '${PACKAGE}'; await spawnOwned('true', [], { runId: 'inner' }).wait()`
      const { runId } = await bot.ask('spawn', process.execPath, ['--input-type=module', '-e', inner], {
        runId: 'outer',
        env: { ...process.env, SPAWN_OWNED_DEBUG: file, SPAWN_OWNED_REGISTRY: freshRegistry() },
      })
      await bot.ask('wait', runId)
      const lines = parse(readFileSync(file, 'utf8'))
      const addons = new Set(lines.filter(({ writer }) => writer === 'addon').map(({ pid }) => pid))
      assert.equal(addons.size, 2)
      assertSequence(lines, [
        ['addon', 'registry: intent'],
        ['addon', 'registry: dropped'],
      ])
      assert.deepEqual(
        ['outer', 'inner'].map((run) =>
          lines.some((line) => line.run === run && line.step === 'registry: dropped'),
        ),
        [true, true],
      )
    },
  )

  test(
    'refuses a symbolic link with a warning, and the bot works',
    posixOnly(NO_USERS, options),
    async (t) => {
      const [link, victim] = ['link', 'victim'].map((name) => join(folder(t), name))
      writeFileSync(victim, 'mine')
      symlinkSync(victim, link)
      const bot = await startBot(t, freshRegistry(), { env: { SPAWN_OWNED_DEBUG: link } })
      await startAndCancel(t, bot)
      assert.equal(readFileSync(victim, 'utf8'), 'mine')
      assert.match(bot.complaint, /OWNED_DEBUG.*symbolic link/s)
    },
  )
})

describe('SPAWN_OWNED_DEBUG=1', () => {
  /** Runs a bot with this stderr and resolves with its exit code. */
  async function runWithStderr(stderr, read = () => {}) {
    const code = `
      import { spawnOwned } from '${PACKAGE}'
      const run = spawnOwned('cat', [], { runId: 'to-stderr' })
      const exit = await run.cancel({ graceMs: 1000 })
      process.exitCode = exit.reason === 'manual-cancel' ? 0 : 1`
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'inherit', stderr],
      env: { ...process.env, SPAWN_OWNED_DEBUG: '1', SPAWN_OWNED_REGISTRY: freshRegistry() },
    })
    const output = read(child)
    const [status] = await once(child, 'exit')
    return { status, output: await output }
  }

  test('traces addon, zygote and keeper to stderr', posixOnly(NO_USERS, options), async () => {
    const { status, output } = await runWithStderr('pipe', ({ stderr }) => text(stderr))
    assert.equal(status, 0)
    const writers = new Set(parse(output).map(({ writer }) => writer))
    assert.deepEqual([...writers].sort(), ['addon', 'keeper', 'zygote'])
  })

  test('does not disturb a bot whose stderr is full', posixOnly(NO_PROC, options), async (t) => {
    if (!isLinux) return t.skip(NO_PROC)
    assert.equal((await runWithStderr(openSync('/dev/full', 'w'))).status, 0)
  })

  test('does not disturb a bot whose stderr has no reader', posixOnly(NO_USERS, options), async () => {
    const { status } = await runWithStderr('pipe', ({ stderr }) => {
      stderr.destroy()
    })
    assert.equal(status, 0)
  })

  test('loses lines instead of waiting for a reader that does not read', NEEDS_FIFO, async (t) => {
    const fifo = join(folder(t), 'stderr')
    execFileSync('mkfifo', [fifo])
    const filler = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK)
    t.after(() => closeSync(filler))
    // Until EAGAIN: the FIFO is full, and a write by the bot would wait.
    assert.throws(() => {
      for (;;) writeSync(filler, Buffer.alloc(4096))
    }, /EAGAIN/)
    assert.equal((await runWithStderr(openSync(fifo, 'w'))).status, 0)
  })
})

describe('without the variable', () => {
  test('there is no file and no descriptor of a trace', {
    ...options,
    skip: !isLinux && NO_PROC,
  }, async (t) => {
    const dir = folder(t)
    const descriptors = async (env) => {
      const bot = await startBot(t, freshRegistry(), { env })
      const witness = openWitness(t)
      const { runId } = await bot.ask('spawn', program('stays'), [witness.path])
      await witness.ready(1)
      const helpers = childrenOf(bot.pid).flatMap((zygote) => [zygote, ...childrenOf(zygote)])
      const open = [bot.pid, ...helpers].flatMap(openFiles)
      await bot.ask('cancelRun', runId)
      return open
    }
    const file = join(dir, 'trace.log')
    assert.ok((await descriptors({ SPAWN_OWNED_DEBUG: file })).includes(file), 'the check sees an open trace')
    const before = readdirSync(dir)
    for (const value of [undefined, '', '0']) {
      const open = await descriptors({ SPAWN_OWNED_DEBUG: value })
      assert.deepEqual(
        open.filter((path) => path.includes('trace')),
        [],
        `${value}`,
      )
    }
    assert.deepEqual(readdirSync(dir), before)
    assert.ok(!existsSync('0'))
  })
})

/** The targets of the descriptors of a process. Those of keepers are readable for root only. */
function openFiles(pid) {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
  } catch {
    return []
  }
}

describe('NODE_DEBUG=spawn-owned', () => {
  test('writes the events of runs to stderr', { ...options, skip: isWindows && NO_USERS }, async (t) => {
    const bot = await startBot(t, freshRegistry(), { env: { NODE_DEBUG: 'spawn-owned' } })
    await startAndCancel(t, bot, { runId: 'turn-8' })
    const steps = () =>
      [...bot.complaint.matchAll(/^SPAWN-OWNED \d+: run=turn-8 (\S+)/gm)].map(([, step]) => step)
    await until(() => steps().includes('exited:'), 'its stderr has arrived')
    assert.deepEqual(steps(), ['spawn', 'started', 'exiting', 'exited:'])
  })
})
