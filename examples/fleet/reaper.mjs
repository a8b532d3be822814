// node reaper.mjs
//
// Answers for its host: ends the runs that it is asked to end, whatever has become of their worker, and says so when nothing of them
// exists. Beside the worker, because one that is stopped or dead cannot answer.

import { setTimeout as sleep } from 'node:timers/promises'
import { Claims } from './claims.mjs'
import { connect, retryMs, say, thisHost } from './settings.mjs'

const { host, supervisor } = thisHost()
const claims = new Claims(connect())
const bell = new Claims(connect())

const { killed } = await supervisor.reapOrphans(process.pid)
if (killed.length > 0) say(`ended what an earlier worker had left: ${killed.length}`)
// What a worker and its keepers leave behind is ended at once, whether or not anybody asks for it.
supervisor.watchOrphans({ autoKill: true, patterns: [] })
say(`reaper ${process.pid} of ${host} is up`)

for (;;) {
  const jobs = await claims.asked(host)
  const left = (await Promise.all(jobs.map(end))).filter((isOver) => !isOver)
  if (left.length > 0) await sleep(retryMs)
  else await bell.bell(host, 5)
}

/** Whether it is proven that nothing of the job's run exists. */
async function end(id) {
  try {
    const { host: of, run } = await claims.read(id)
    if (of !== host) {
      await claims.forget(host, id)
      return true
    }
    // Not found: it has ended, or it is yet to come, and will find its gate shut.
    const { outcome, exits } = await supervisor.cancel(run)
    const survivors = exits.flatMap((exit) => exit.survivors)
    if (survivors.length > 0) throw new Error(survivors.map(({ pid, why }) => `${pid}: ${why}`).join(', '))
    await claims.leave(id, run)
    say(`${id}: ${outcome}, nothing of it is left`)
    return true
  } catch (error) {
    say(`${id}: not proven: ${error.message}`)
    return false
  }
}
