/** What a reap may end, and what its report says compared with what the lab sees. */

/**
 * Until the returned function is called, and while `isAble()`, kept runs may be ended as orphans.
 */
export const mayReap = (stage, isAble = () => true) =>
  stage.during((run) => isAble() && run.isKept && !stage.bot(run.bot), 'reaped')

const isSeenGone = (run) => run && !run.isAlive()

/**
 * Called before a reap. Call `onResult(report)` as soon as the report arrives, and `over()` when
 * the reap has ended, with or without a report.
 */
export function beginReap(stage, by, { policy = 'terminate', dryRun = false } = {}) {
  const over = dryRun || policy !== 'terminate' ? () => {} : mayReap(stage)
  const isUnowned = (run) => run.mustBeRecorded && !run.registryLost && !stage.bot(run.bot) && run.isAlive()
  const unowned = [...stage.runs.values()].filter(isUnowned)
  const step = stage.at
  const onResult = ({ decisions, adopted }) => {
    // Another bot may have decided on runs that are gone by now.
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
  return { over, onResult }
}
