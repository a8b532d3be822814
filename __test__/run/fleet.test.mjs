// examples/fleet: jobs on several hosts. Each job runs on one host at a time, although a worker,
// keeper or host is killed, stopped or cut off.
import { gone, stateOf, until } from '../support/bots.mjs'
import { noFleet, openRoad, startFleet } from '../support/fleet.mjs'
import { assert, describe, test } from '../support/prelude.mjs'

const options = { timeout: 180_000 }
const together = { timeout: 600_000, concurrency: 4, skip: noFleet }

const alive = (pids) => pids.filter((pid) => !['Z', 'X', undefined].includes(stateOf(pid)))

/** Starts a job on the first of two hosts. The second host is idle. */
async function twoHosts(t, times) {
  const fleet = await startFleet(t, times)
  const one = await fleet.host('first').start()
  const id = await fleet.cli('add', ...fleet.job.command)
  const pids = await fleet.job.started(1)
  const other = await fleet.host('second').start()
  return { fleet, one, other, id, pids, job: fleet.job }
}

/** Lets the job finish, and checks that it completed once and left no process. */
async function completes({ fleet, id, job }, history) {
  job.finish()
  const isOver = async () => (await fleet.inTheQueue(id)).state === 'completed'
  await until(isOver, 'the job is completed', 60_000)
  assert.deepEqual(job.history, history)
  const { returnvalue } = await fleet.inTheQueue(id)
  assert.deepEqual(returnvalue, { output: `done in epoch ${history.at(-1).split(' ')[1]}\n` })
  assert.equal(await fleet.status(id), 'completed')
  job.witness.release()
  await job.witness.gone(20_000)
}

describe('a job', together, () => {
  test('runs to its end', options, async (t) => {
    const fleet = await startFleet(t)
    await fleet.host('only').start()
    const id = await fleet.cli('add', ...fleet.job.command)
    await fleet.job.started(1)
    await completes({ fleet, id, job: fleet.job }, ['start 1', 'done 1'])
  })

  test('that fails has the exit code in its reason', options, async (t) => {
    const fleet = await startFleet(t)
    await fleet.host('only').start()
    const id = await fleet.cli('add', 'sh', '-c', 'exit 7')
    await until(async () => (await fleet.inTheQueue(id)).state === 'failed', 'the job has failed')
    assert.match((await fleet.inTheQueue(id)).failedReason, /7/)
  })

  test('is gone when the cancel by its id, from any host, returns', options, async (t) => {
    const { fleet, id, job } = await twoHosts(t)
    job.witness.release()
    assert.equal(await fleet.cli('cancel', id), `${id}\tcancelled`)
    assert.ok(job.witness.isGone(), `processes exist:\n${job.witness.holders()}`)
    await until(async () => (await fleet.inTheQueue(id)).state === 'failed', 'the queue has the failure')
    assert.equal((await fleet.inTheQueue(id)).failedReason, 'cancelled')
    assert.equal(await fleet.status(id), 'cancelled')
    assert.deepEqual(job.history, ['start 1'])
  })

  test('can be cancelled although its worker is stopped', options, async (t) => {
    const { fleet, id, one, job } = await twoHosts(t)
    await one.worker.signal('SIGSTOP', 'T')
    job.witness.release()
    assert.equal(await fleet.cli('cancel', id), `${id}\tcancelled`)
    assert.ok(job.witness.isGone(), `processes exist:\n${job.witness.holders()}`)
    await until(async () => (await fleet.inTheQueue(id)).state === 'failed', 'the queue has the failure')
    assert.deepEqual(job.history, ['start 1'])
  })

  test('can be cancelled before a worker takes it', options, async (t) => {
    const fleet = await startFleet(t)
    const id = await fleet.cli('add', ...fleet.job.command)
    assert.equal(await fleet.cli('cancel', id), `${id}\tcancelled`)
    await fleet.host('late').start()
    await until(async () => (await fleet.inTheQueue(id)).state === 'failed', 'the queue has the failure')
    assert.deepEqual(fleet.job.history, [])
  })

  test('runs on another worker at once if its worker gets SIGTERM', options, async (t) => {
    const it = await twoHosts(t)
    assert.equal(await it.one.worker.kill('SIGTERM'), 0)
    await it.job.started(2)
    assert.equal((await it.fleet.inTheQueue(it.id)).stalledCounter, 0)
    await completes(it, ['start 1', 'start 2', 'done 2'])
  })
})

describe('a job runs on one host at a time', together, () => {
  test('when the worker is killed', options, async (t) => {
    const it = await twoHosts(t)
    await it.one.worker.kill()
    await it.job.started(2)
    assert.deepEqual(alive(it.pids), [])
    await completes(it, ['start 1', 'start 2', 'done 2'])
  })

  test('when the worker is stopped for longer than its lock, and continues', options, async (t) => {
    const it = await twoHosts(t)
    // Without a reaper, the keeper must end the tree before the lock expires.
    await it.one.reaper.kill()
    await it.one.worker.signal('SIGSTOP', 'T')
    for (const pid of it.pids) await gone(pid)
    assert.deepEqual(it.job.history, ['start 1'])
    await it.one.startReaper()
    await it.job.started(2)
    await it.one.worker.signal('SIGCONT')
    await it.one.worker.says(/queue: /)
    await completes(it, ['start 1', 'start 2', 'done 2'])
  })

  test(
    'when worker and keepers are killed: the job waits until the host has ended the tree',
    options,
    async (t) => {
      const it = await twoHosts(t)
      await it.one.reaper.kill()
      await it.one.worker.killWithHelpers()
      await it.other.worker.says(new RegExp(`(${it.id}: waits for ${it.one.id}[^]*){3}`))
      assert.deepEqual(alive(it.pids), it.pids, 'the tree still lives')
      assert.deepEqual(it.job.history, ['start 1'])
      assert.match(await it.fleet.status(it.id), new RegExp(`waits until ${it.one.id} has proven`))
      await it.one.startReaper()
      await it.job.started(2)
      assert.deepEqual(alive(it.pids), [])
      await completes(it, ['start 1', 'start 2', 'done 2'])
    },
  )

  test('when worker and keepers are killed, and the reaper ends the tree', options, async (t) => {
    const fleet = await startFleet(t)
    const only = await fleet.host('only').start()
    const id = await fleet.cli('add', ...fleet.job.command)
    const pids = await fleet.job.started(1)
    await only.worker.killWithHelpers()
    // No other host waits for this job.
    for (const pid of pids) await gone(pid)
    await only.startWorker()
    await fleet.job.started(2)
    await completes({ fleet, id, job: fleet.job }, ['start 1', 'start 2', 'done 2'])
  })

  test('when the host is cut off: its tree ends, and the job waits for its report', options, async (t) => {
    const fleet = await startFleet(t)
    const road = await openRoad(t, fleet)
    const one = await fleet.host('first', { socket: road.socket }).start()
    const id = await fleet.cli('add', ...fleet.job.command)
    const pids = await fleet.job.started(1)
    const other = await fleet.host('second').start()
    road.cut()
    for (const pid of pids) await gone(pid)
    await other.worker.says(new RegExp(`(${id}: waits for ${one.id}[^]*){2}`))
    assert.deepEqual(fleet.job.history, ['start 1'])
    road.mend()
    await fleet.job.started(2)
    await completes({ fleet, id, job: fleet.job }, ['start 1', 'start 2', 'done 2'])
  })

  test('when the host is gone for good, and an operator declares it dead', options, async (t) => {
    const it = await twoHosts(t)
    await it.one.reaper.kill()
    await it.one.worker.killWithHelpers()
    for (const pid of it.pids) process.kill(pid, 'SIGKILL')
    await it.other.worker.says(new RegExp(`(${it.id}: waits for ${it.one.id}[^]*){2}`))
    await it.fleet.cli('declare-dead', it.one.id)
    await it.job.started(2)
    await assert.rejects(it.one.startWorker(), /declared dead/)
    await completes(it, ['start 1', 'start 2', 'done 2'])
  })

  test('when Redis is killed and started again: the run continues', options, async (t) => {
    const it = await twoHosts(t, { FLEET_LEASE: '30' })
    await it.fleet.killRedis()
    await it.fleet.startRedis()
    await completes(it, ['start 1', 'done 1'])
  })

  test(
    'when Redis is away for longer than a lease: the run ends, and the job runs again',
    options,
    async (t) => {
      const it = await twoHosts(t)
      await it.fleet.killRedis()
      for (const pid of it.pids) await gone(pid)
      await it.fleet.startRedis()
      await it.job.started(2)
      await completes(it, ['start 1', 'start 2', 'done 2'])
    },
  )
})

describe('the claim record', together, () => {
  test('grants a job to one worker at a time', options, async (t) => {
    const fleet = await startFleet(t)
    const { claims } = await fleet.workerHere(t, fleet.host('here'))
    const taken = (epoch) => ({ verdict: 'granted', epoch })
    assert.deepEqual(await claims.take('7', 'a', 'first'), taken(1))
    assert.deepEqual(
      await claims.take('7', 'a', 'first'),
      taken(1),
      'a repeated request gets the same answer',
    )
    assert.equal(await claims.holds('7', 'first'), true)
    for (const host of ['b', 'a'])
      assert.deepEqual(await claims.take('7', host, 'second'), { verdict: 'held', host: 'a' })
    assert.deepEqual(await claims.asked('a'), ['7'])
    assert.equal(await claims.holds('7', 'first'), false, 'the first claim is fenced')
    assert.equal((await claims.take('7', 'a', 'first')).verdict, 'held', 'the fence is final')
    assert.equal(await claims.leave('7', 'second'), undefined)
    assert.equal((await claims.take('7', 'b', 'second')).verdict, 'held', 'only the holder can leave')
    await claims.leave('7', 'first')
    assert.deepEqual(await claims.asked('a'), [])
    assert.deepEqual(await claims.take('7', 'b', 'second'), taken(2))
    const late = { state: 'completed', output: 'late' }
    assert.equal(await claims.leave('7', 'first', late), undefined, 'a fenced worker cannot record a result')
    assert.equal(await claims.holds('7', 'second'), true)
  })

  test(
    'keeps a finished job from running again although the queue does not know its end',
    options,
    async (t) => {
      const fleet = await startFleet(t)
      const { claims } = await fleet.workerHere(t, fleet.host('here'))
      const id = await fleet.cli('add', ...fleet.job.command)
      await claims.take(id, 'a', 'first')
      await claims.leave(id, 'first', { state: 'completed', output: 'before' })
      await fleet.host('next').start()
      await until(async () => (await fleet.inTheQueue(id)).state === 'completed', 'the queue has the result')
      assert.deepEqual((await fleet.inTheQueue(id)).returnvalue, { output: 'before' })
      assert.deepEqual(fleet.job.history, [])
    },
  )
})

test('a worker does not start a job after its host has reported that no run exists', {
  ...options,
  skip: noFleet,
}, async (t) => {
  const fleet = await startFleet(t)
  const host = fleet.host('slow')
  await host.startReaper()
  const id = await fleet.cli('add', ...fleet.job.command)
  const { runJob, supervisor, claims } = await fleet.workerHere(t, host)
  const job = {
    id,
    data: { command: fleet.job.command[0], args: fleet.job.command.slice(1) },
    extendLock: async () => 1,
  }
  // The job is cancelled after the worker takes it and before the worker starts the run.
  const spawnOwned = (...args) => {
    assert.equal(fleet.cliSync('cancel', id), `${id}\tcancelled`)
    return supervisor.spawnOwned(...args)
  }
  await assert.rejects(
    runJob({ host: host.id, supervisor: { spawnOwned }, claims }, job, 'token'),
    /^UnrecoverableError: cancelled$/,
  )
  await host.reaper.says(/not-found, nothing of it is left/)
  assert.deepEqual(fleet.job.history, [])
  assert.deepEqual(supervisor.list(), [])
})
