// node reaper.mts
//
// The reaper of a host terminates runs on request and confirms that their trees are gone. It is a
// separate process, because a worker that is stopped or dead cannot answer.

import { setTimeout as sleep } from 'node:timers/promises'
import { Claims } from './claims.mts'
import { connect, retryMs, say, thisHost } from './settings.mts'

const { host, supervisor } = thisHost()
const claims = new Claims(connect())
const bell = new Claims(connect())

const { killed } = await supervisor.reapOrphans(process.pid)
if (killed.length > 0) say(`terminated ${killed.length} orphans of an earlier worker`)
// Terminate orphans at once, without a request: runs whose worker and keepers were killed together.
supervisor.watchOrphans({ autoKill: true, patterns: [] })
say(`reaper ${process.pid} of ${host} is up`)

for (;;) {
  const jobs = await claims.asked(host)
  const left = (await Promise.all(jobs.map(end))).filter((isGone) => !isGone)
  if (left.length > 0) await sleep(retryMs)
  else await bell.bell(host, 5)
}

/** Terminates the job's run. Returns whether it is proven that the run's tree is gone. */
async function end(id: string): Promise<boolean> {
  try {
    const { host: of, run } = await claims.read(id)
    if (of !== host || run === undefined) {
      await claims.forget(host, id)
      return true
    }
    // `not-found` is a proof, too: the run has ended, or it has not been spawned yet. In the second
    // case `holds` is false, so its gate never opens.
    const { outcome, exits } = await supervisor.cancel(run)
    const survivors = exits.flatMap((exit) => exit.survivors)
    if (survivors.length > 0) throw new Error(survivors.map(({ pid, why }) => `${pid}: ${why}`).join(', '))
    await claims.leave(id, run)
    say(`${id}: ${outcome}, nothing of it is left`)
    return true
  } catch (error) {
    say(`${id}: could not prove that its run is gone, will retry: ${(error as Error).message}`)
    return false
  }
}
