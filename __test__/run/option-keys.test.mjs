// Unknown keys in option objects: a misspelled option is an error that names the function and the
// intended key, and nothing happens.
// Options of a run can have keys of other packages. Only keys that resemble an option of spawnOwned
// are errors.
import { once } from 'node:events'
import { existsSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  cancel,
  captureStartToken,
  createSupervisor,
  endOrphans,
  ensureService,
  findOrphans,
  installSignalHandlers,
  list,
  reapOrphans,
  registerProcess,
  shutdown,
  spawnOwned,
  stopService,
  survey,
  unregisterProcess,
  watchOrphans,
} from 'spawn-owned'
import { createSpawner } from 'spawn-owned/claude-agent-sdk'
import { StdioClientTransport } from 'spawn-owned/mcp'
import pty from 'spawn-owned/node-pty'
import { assertAlive, assertGone, freshRegistry, startBot, supervise } from '../support/bots.mjs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { sources, test as sourceTest } from '../support/sources.mjs'
import { removeFolder } from '../support/system.mjs'

const options = { timeout: 60_000 }

/** Starts a run that outlives its bot, with a witness. */
async function orphan(t) {
  const registryPath = freshRegistry()
  const witness = openWitness(t)
  const bot = await startBot(t, registryPath)
  await bot.ask('spawn', program('stays'), [witness.path], { onOwnerExit: 'keep', runId: 'left' })
  await witness.ready(1)
  await bot.kill()
  return { witness, next: supervise(registryPath) }
}

test('a misspelled dry run ends no orphan', options, async (t) => {
  const { witness, next } = await orphan(t)
  const misspelled = [
    { dryrun: true },
    { DryRun: true },
    { dry_run: true },
    { 'dry-run': true },
    { dry: true },
  ]
  for (const wrong of misspelled) {
    const refused = { code: 'ERR_INVALID_ARG_VALUE', message: /of reapOrphans; did you mean 'dryRun'\?/ }
    await assert.rejects(next.reapOrphans(wrong), refused)
    await assert.rejects(next.reapOrphans(process.pid, wrong), refused)
    await assert.rejects(next.endOrphans(wrong), {
      ...refused,
      message: /of endOrphans; did you mean 'dryRun'\?/,
    })
  }
  assertAlive(witness)
  assert.equal(next.list().length, 1)
  await next.reapOrphans({ dryRun: true, policy: undefined, unknown: undefined })
  assertAlive(witness)
  await next.reapOrphans()
  assertGone(witness)
})

test('a dry run that an object inherits is an error, and ends no orphan', options, async (t) => {
  const { witness, next } = await orphan(t)
  class Inherited {
    get dryRun() {
      return true
    }
  }
  const refused = { code: 'ERR_INVALID_ARG_VALUE', message: /'options\.dryRun' is inherited/ }
  await assert.rejects(next.reapOrphans(new Inherited()), refused)
  await assert.rejects(next.reapOrphans(Object.create({ dryRun: true })), refused)
  await assert.rejects(next.reapOrphans(Object.defineProperty({}, 'dryRun', { value: true })), refused)
  assertAlive(witness)
  await next.reapOrphans()
  assertGone(witness)
})

describe('an unknown key is an error of', options, () => {
  const service = { name: 'x', command: 'true', port: 1 }
  /** Function, call, wrong key, intended key, name of the object. */
  const rows = [
    ['cancel', (wrong) => cancel('no-such-run', wrong), 'gracems', 'graceMs'],
    ['cancel', (wrong) => cancel({ sessionId: 'x', ...wrong }), 'runID', 'runId', 'filter'],
    ['reapOrphans', (wrong) => reapOrphans(wrong), 'stealFromlive', 'stealFromLive'],
    ['findOrphans', (wrong) => findOrphans(wrong), 'project', 'projectDir'],
    ['endOrphans', (wrong) => endOrphans({ dryRun: true, ...wrong }), 'olderThan', 'olderThanMs'],
    ['watchOrphans', (wrong) => watchOrphans(wrong), 'autokill', 'autoKill'],
    ['list', (wrong) => list(wrong), 'label', 'labels', 'filter'],
    ['survey', (wrong) => survey(wrong), 'scope', 'scopeKey', 'filter'],
    [
      'registerProcess',
      (wrong) => registerProcess({ pid: process.ppid, ...wrong }),
      'runid',
      'runId',
      'entry',
    ],
    ['unregisterProcess', (wrong) => unregisterProcess({ runId: 'x', ...wrong }), 'Pid', 'pid', 'filter'],
    ['createSupervisor', (wrong) => createSupervisor(wrong), 'registrypath', 'registryPath'],
    ['shutdown', (wrong) => shutdown(wrong), 'leavekept', 'leaveKept'],
    ['installSignalHandlers', (wrong) => installSignalHandlers(wrong), 'signal', 'signals'],
    ['ensureService', (wrong) => ensureService({ ...service, ...wrong }), 'readyTimeout', 'readyTimeoutMs'],
    [
      'ensureService',
      (wrong) => ensureService({ ...service, limits: wrong }),
      'memoryByte',
      'memoryBytes',
      'options.limits',
    ],
    ['stopService', (wrong) => stopService('no-such-service', wrong), 'grace', 'graceMs'],
    ['spawnOwned', (wrong) => spawnOwned('true', { pty: wrong }), 'columns', undefined, 'options.pty'],
    ['spawnOwned', (wrong) => spawnOwned('true', { pty: wrong }), 'col', 'cols', 'options.pty'],
    [
      'spawnOwned',
      (wrong) => spawnOwned('true', { limits: wrong }),
      'proceses',
      'processes',
      'options.limits',
    ],
    ['createSpawner', (wrong) => createSpawner(wrong), 'onrun', 'onRun'],
    [
      'StdioClientTransport',
      (wrong) => new StdioClientTransport({ command: 'true', ...wrong }),
      'closeMS',
      'closeMs',
      'server',
    ],
    ['spawn', (wrong) => pty.spawn('true', [], wrong), 'handleFlowcontrol', 'handleFlowControl'],
  ]
  for (const [of, call, wrong, meant, name = 'options'] of rows) {
    test(`${of}: ${name}.${wrong}`, async () => {
      const hint = meant === undefined ? 'its options are .+' : `did you mean '${meant}'\\?`
      await assert.rejects(async () => call({ [wrong]: 1 }), {
        name: 'TypeError',
        code: 'ERR_INVALID_ARG_VALUE',
        message: new RegExp(`^The property '${name}.${wrong}' is not an option of ${of}; ${hint}`),
      })
    })
  }

  test('no function if the key is undefined or missing', async () => {
    assert.equal(list().length, list({}).length)
    assert.equal(list({ runId: undefined }).length, list().length)
  })
})

describe('the options of a run', options, () => {
  const misspelled = [
    ...[
      'runID',
      'runid',
      'RunId',
      'runIdd',
      'rundI',
      'sesionId',
      'sessionID',
      'label',
      'scopekey',
      'ScopeKey',
    ],
    ...[
      'timeoutms',
      'timeoutMS',
      'timeoutM',
      'timeOutMs',
      'noOutputTimeoutms',
      'graceMS',
      'gracMs',
      'graceMss',
    ],
    ...['onOwnerexit', 'onOwnerExti', 'onLeaderexit', 'containmnet', 'limit', 'Pty', 'commandpreview'],
    ...['replaceExistingscope', 'detatched', 'killsignal', 'Cwd', 'ENV', 'Shell', 'tiemout', 'serialisation'],
  ]
  test('refuse keys that resemble an option, and nothing starts', (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'option-keys-'))
    t.after(() => removeFolder(folder))
    const registryPath = join(folder, 'data', 'process-registry.json')
    const { spawnOwned: spawn } = createSupervisor({ registryPath })
    for (const key of misspelled)
      assert.throws(() => spawn('touch', [join(folder, 'started')], { [key]: 'x' }), {
        code: 'ERR_INVALID_ARG_VALUE',
        message: new RegExp(
          `^The property 'options.${key}' is not an option of spawnOwned; did you mean '\\w+'\\?`,
        ),
      })
    assert.ok(!existsSync(join(folder, 'started')), 'the command must not start')
    assert.ok(!existsSync(registryPath), 'the registry must not exist')
  })

  /**
   * Options of Node's own functions, execa 10 and earlier, cross-spawn, tinyexec, nano-spawn, zx and
   * node-pty.
   */
  const foreign = [
    ...['argv0', 'cwd', 'detached', 'encoding', 'env', 'execArgv', 'execPath', 'gid', 'input', 'killSignal'],
    ...['maxBuffer', 'serialization', 'shell', 'signal', 'silent', 'stdio', 'timeout', 'uid', 'windowsHide'],
    ...[
      'windowsVerbatimArguments',
      'all',
      'buffer',
      'cancelSignal',
      'cleanup',
      'extendEnv',
      'forceKillAfterDelay',
      'killDescendants',
    ],
    ...[
      'forceKillAfterTimeout',
      'gracefulCancel',
      'inputFile',
      'ipc',
      'ipcInput',
      'lines',
      'localDir',
      'node',
    ],
    ...['nodeOptions', 'nodePath', 'preferLocal', 'reject', 'stderr', 'stdin', 'stdout', 'stripEof'],
    ...[
      'stripFinalNewline',
      'verbose',
      'nodeOptions',
      'persist',
      'throwOnError',
      'nothrow',
      'quiet',
      'prefix',
    ],
    ...['postfix', 'quote', 'halt', 'delimiter', 'preset', 'name', 'cols', 'rows', 'handleFlowControl'],
    ...['flowControlPause', 'flowControlResume', 'useConpty', 'conptyInheritCursor', 'experimentalUseConpty'],
    ...[
      'pid',
      'id',
      'command',
      'args',
      'retries',
      'logger',
      'name',
      'title',
      'tags',
      'metadata',
      'onExit',
      'onData',
    ],
  ]
  sourceTest('are one slip away from no option of Node and other packages', async () => {
    const { refuseMisspelled } = await sources('util/read-options')
    for (const key of foreign) refuseMisspelled({ [key]: 1 }, 'spawnOwned')
  })

  test('can have keys of other packages', async () => {
    const child = supervise(freshRegistry()).spawnOwned('true', [], {
      ...{ stdio: 'ignore', cleanup: true, stdin: 'ignore', input: 'x', reject: false, gracems: undefined },
      [Symbol('foreign')]: 1,
    })
    assert.deepEqual(await once(child, 'exit'), [0, null])
  })
})

test('spawn-owned reads each value of a caller once', options, async () => {
  const reads = new Map()
  const counted = (object, prefix = '') =>
    new Proxy(object, {
      get(target, key) {
        if (typeof key === 'string') reads.set(prefix + key, (reads.get(prefix + key) ?? 0) + 1)
        return target[key]
      },
    })
  const supervisor = supervise(freshRegistry())
  const labels = counted({ agent: 'x' }, 'labels.')
  const child = supervisor.spawnOwned(
    'sleep',
    ['60'],
    counted({ runId: 'once', labels, graceMs: 100, stdio: 'ignore' }),
  )
  const wanted = counted({ labels: counted({ agent: 'x' }, 'filter.labels.'), runId: 'once' }, 'filter.')
  assert.equal(supervisor.list(wanted).length, 1)
  assert.ok(
    [...reads.values()].every((count) => count === 1),
    JSON.stringify([...reads]),
  )
  reads.clear()
  const { outcome } = await supervisor.cancel(wanted, counted({ graceMs: 100, signal: 'SIGKILL' }, 'cancel.'))
  assert.equal(outcome, 'cancelled')
  await child.wait()
  assert.ok(
    [...reads.values()].every((count) => count === 1),
    JSON.stringify([...reads]),
  )
  reads.clear()
  const service = {
    name: 'once',
    command: join(tmpdir(), 'nonexistent'),
    args: counted(['a'], 'args.'),
    env: counted({ A: '1' }, 'env.'),
    limits: undefined,
    labels,
    port: 1,
    attempts: 2,
    backoffMs: 1,
  }
  await assert.rejects(supervisor.ensureService(counted(service)), { code: 'ENOENT' })
  const twice = [...reads].filter(([name, count]) => count > 1 && !/args\.(length|constructor)/.test(name))
  assert.deepEqual(twice, [])
})

test('spawn-owned converts an argument to text once', options, async () => {
  const texts = ['one', 'two\0', 'three']
  const argument = { toString: () => texts.shift() }
  const child = supervise(freshRegistry()).spawnOwned('echo', [argument], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [text] = await once(child.stdout, 'data')
  assert.equal(String(text), 'one\n')
  await child.wait()
})

test('the error for a value that cannot be read names it', options, async () => {
  const fails = () => {
    throw new RangeError('a getter of the caller')
  }
  const named = (name) => (error) => {
    assert.equal(error.code, 'ERR_INVALID_ARG_VALUE')
    assert.equal(error.message, `The property '${name}' cannot be read: a getter of the caller`)
    assert.ok(error.cause instanceof RangeError)
    return true
  }
  const getter = (key) => Object.defineProperty({}, key, { get: fails, enumerable: true })
  await assert.rejects(reapOrphans(getter('dryRun')), named('options.dryRun'))
  await assert.rejects(cancel('no-such-run', getter('graceMs')), named('options.graceMs'))
  await assert.rejects(cancel(getter('runId')), named('filter.runId'))
  await assert.rejects(ensureService(getter('port')), named('options.port'))
  assert.throws(() => createSupervisor(getter('leaseMs')), named('options.leaseMs'))
  assert.throws(() => list({ labels: getter('agent') }), named('filter.labels'))
})

test('an option object that inherits from URL is refused with a code', options, async () => {
  const inherits = Object.setPrototypeOf({ name: 'x', command: 'true', port: 1 }, URL.prototype)
  await assert.rejects(ensureService(inherits), { code: 'ERR_INVALID_ARG_VALUE', message: /options\.host/ })
})

describe('captureStartToken', () => {
  test('returns null for a value that is not the PID of a process', () => {
    for (const pid of [-1, 0, 1.5, Number.NaN, Infinity, 2 ** 31, 2 ** 53, -(2 ** 31)])
      assert.equal(captureStartToken(pid), null)
    assert.equal(typeof captureStartToken(process.pid), 'string')
  })
})
