/** What a reap may end, and what its report says beside what is seen. */

/** Until the function that is returned is called, and while `isAble()`, runs that are kept may be ended as orphans. */
export const mayReap = (stage, isAble = () => true) =>
  stage.during((run) => isAble() && run.isKept && !stage.bot(run.bot), 'reaped')

const isSeenGone = (run) => run && !run.isAlive()

/**
 * Before somebody reaps. `heard(report)` is to be called in the moment in which the report is heard, `over()` when it is over, report or
 * not.
 */
export function beginReap(stage, by, { policy = 'terminate', dryRun = false } = {}) {
  const over = dryRun || policy !== 'terminate' ? () => {} : mayReap(stage)
  const isUnowned = (run) => run.mustBeRecorded && !run.registryLost && !stage.bot(run.bot) && run.isAlive()
  const unowned = [...stage.runs.values()].filter(isUnowned)
  const step = stage.at
  const heard = ({ decisions, adopted }) => {
    // Those that are gone by now may have been somebody else's to decide on.
    const alive = unowned.filter((run) => run.mustBeRecorded && !run.registryLost && run.isAlive())
    stage.reports.push({
      by,
      step,
      dryRun,
      decisions: decisions.map(({ record, ...decision }) => ({
        ...decision,
        isGone: isSeenGone(stage.run(decision.runId)),
      })),
      alive: alive.map(({ name }) => name),
    })
    for (const { runId } of adopted) stage.run(runId)?.belongsTo(by)
  }
  return { over, heard }
}
