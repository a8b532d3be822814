/** Keepers and zygotes, as seen from outside. */

import { childrenOf, isHelper, ProcessHandle } from './witness.mjs'

const runsOf = (stage) => [...stage.runs.values()]
const isAmong = (helpers, one) => one !== undefined && helpers.some((helper) => helper.isSame(one))

/**
 * The zygotes of a bot, the keepers below them, and the keepers of its runs that have lost their
 * zygote.
 */
export function helpersOf(stage, bot) {
  const zygotes = childrenOf(bot.process.pid).filter(isHelper)
  const below = [...zygotes, ...zygotes.flatMap((zygote) => childrenOf(zygote).filter(isHelper))]
  const keepers = runsOf(stage).filter((run) => run.bot === bot.name && run.keeper?.isAlive())
  const others = keepers.map(({ keeper }) => keeper).filter(({ pid }) => !below.includes(pid))
  return [...below.map((pid) => new ProcessHandle(pid)), ...others]
}

/** Keepers that have no run yet. */
export const sparesOf = (stage, bot) =>
  childrenOf(bot.process.pid)
    .filter(isHelper)
    .flatMap((zygote) => childrenOf(zygote).filter(isHelper))
    .map((pid) => new ProcessHandle(pid))
    .filter((spare) => !runsOf(stage).some(({ keeper }) => keeper?.isSame(spare)))

export const runsKeptBy = (stage, helpers) => runsOf(stage).filter(({ keeper }) => isAmong(helpers, keeper))

export const runsWatchedBy = (stage, helpers) =>
  runsOf(stage).filter(({ zygote }) => isAmong(helpers, zygote))
