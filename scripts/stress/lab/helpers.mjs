/** Keepers and zygotes, as the stage sees them. */

import { childrenOf, isHelper, ProcessHandle } from './witness.mjs'

const runsOf = (stage) => [...stage.runs.values()]
const isAmong = (helpers, one) => one !== undefined && helpers.some((helper) => helper.isSame(one))

/** Zygotes of a bot, the keepers below them, and those of its runs that have lost their zygote. */
export function helpersOf(stage, bot) {
  const zygotes = childrenOf(bot.process.pid).filter(isHelper)
  const below = [...zygotes, ...zygotes.flatMap((zygote) => childrenOf(zygote).filter(isHelper))]
  const keepers = runsOf(stage).filter((run) => run.bot === bot.name && run.keeper?.isAlive())
  const others = keepers.map(({ keeper }) => keeper).filter(({ pid }) => !below.includes(pid))
  return [...below.map((pid) => new ProcessHandle(pid)), ...others]
}

export const runsKeptBy = (stage, helpers) => runsOf(stage).filter(({ keeper }) => isAmong(helpers, keeper))

export const runsWatchedBy = (stage, helpers) =>
  runsOf(stage).filter(({ zygote }) => isAmong(helpers, zygote))
