// ensureService and the port of a worker: which process has it.
import { assertAlive, assertGone, supervise } from '../support/bots.mjs'
import { assert, describe, FOR_EVER, options, program, READY, test } from '../support/prelude.mjs'
import { fails, heardAt, onceMore, service, slowService, squat } from '../support/services.mjs'
import { isWindows, linuxOnly, NO_SHELL, posixOnly } from '../support/system.mjs'

const together = { timeout: 600_000, concurrency: 3 }
const NO_PORT_OWNER = 'only Linux shows which process has a port'

test(
  'a worker whose main thread has ended is found at its port',
  linuxOnly(NO_PORT_OWNER, options),
  async (t) => {
    const it = await service(t)
    const listens = { command: program('listens-in-a-thread'), args: [it.witness.path, String(it.port)] }
    const { pid, started } = await it.here.ensureService({ ...it.options, ...listens })
    assert.deepEqual([started, await heardAt(it.port)], [true, String(pid)])
    const again = await it.here.ensureService({ ...it.options, ...listens })
    assert.deepEqual([again.pid, again.started], [pid, false])
  },
)

describe('ensureService reports that another process has the port', together, () => {
  const taken = (port) =>
    fails(
      'ERR_OWNED_PORT_TAKEN',
      new RegExp(`Port ${port} `),
      isWindows
        ? /not belong to service "worker"/
        : new RegExp(`process ${process.pid} .*not belong to service "worker"`),
    )

  test('before the start, and starts no worker', options, async (t) => {
    const it = await service(t, { backoffMs: FOR_EVER })
    await squat(t, it.port)
    await assert.rejects(it.here.ensureService(it.options), taken(it.port))
    assert.equal(it.witness.count(READY), 0)
    assert.deepEqual(it.here.list(), [])
    assert.equal(await heardAt(it.port), 'squatter')
  })

  test('after the worker has died', options, async (t) => {
    const it = await service(t, { backoffMs: FOR_EVER })
    const { pid } = await it.here.ensureService(it.options)
    await it.witness.ready(1)
    process.kill(pid, 'SIGKILL')
    await it.witness.gone(20_000)
    await squat(t, it.port)
    await assert.rejects(it.here.ensureService(onceMore(t, it).options), taken(it.port))
    assert.deepEqual(it.here.list(), [])
  })

  test('before the worker listens, and ends the worker', posixOnly(NO_PORT_OWNER, options), async (t) => {
    const it = await slowService(t, { backoffMs: FOR_EVER })
    const starting = it.here.ensureService(it.options)
    starting.catch(() => {})
    await it.witness.ready(1)
    await squat(t, it.port)
    await assert.rejects(starting, taken(it.port))
    assertGone(it.witness)
  })

  test(
    'and does not end a worker that another caller has started',
    posixOnly(NO_PORT_OWNER, options),
    async (t) => {
      const it = await slowService(t)
      await it.here.ensureService({ ...it.options, port: undefined, ready: () => true })
      await it.witness.ready(1)
      await squat(t, it.port)
      await assert.rejects(supervise(it.path).ensureService(it.options), taken(it.port))
      assertAlive(it.witness)
    },
  )

  test('but not if a child of the worker has it', posixOnly(NO_SHELL, options), async (t) => {
    const it = await service(t)
    const { command, args } = it.options
    const wrapped = { command: 'sh', args: ['-c', '"$@"; exit 1', 'sh', command, ...args] }
    const { pid } = await it.here.ensureService({ ...it.options, ...wrapped })
    assert.notEqual(await heardAt(it.port), String(pid))
  })
})
