// From raw results to the figure and the tables. Pure: no processes, no files.

/**
 * The result of one file:
 * excluded   fails or is skipped without the replacement, so it says nothing about it
 * unaffected never calls what is replaced (see `calls` for what it calls instead)
 * same       passes with and without the replacement
 * different  passes without the replacement, fails with it
 */
export function classify({ plain, owned }) {
  if (!plain.passed || plain.skipped || !owned) return 'excluded'
  if (owned.some((run) => !run.passed)) return callsReplaced(owned) ? 'different' : 'broken'
  return callsReplaced(owned) ? 'same' : 'unaffected'
}

const callsReplaced = (runs) => runs.some(({ calls, replaced }) => replaced.some((name) => calls[name] > 0))

export function summarise(results, reasons) {
  const of = (kind) => results.filter((result) => result.kind === kind)
  const same = of('same').length
  const relevant = same + of('different').length
  const differences = [...of('different'), ...of('broken')].map((result) => {
    const failed = result.owned.find((run) => !run.passed)
    return {
      file: result.file,
      outcome: describeOutcome(failed),
      reason: reasons[result.file] ?? null,
      evidence: evidence(failed.output),
      failures: `${result.owned.filter((run) => !run.passed).length}/${result.owned.length}`,
      callsReplaced: result.kind === 'different',
      output: failed.output,
    }
  })
  const differing = new Set(differences.map(({ file }) => file))
  return {
    files: results.length,
    excluded: of('excluded').map(({ file, plain }) => ({
      file,
      why: plain.skipped ? 'skipped' : `${describeOutcome(plain)}: ${evidence(plain.output)}`,
    })),
    unaffected: of('unaffected').map(({ file, owned }) => ({ file, calls: owned[0].calls })),
    callReplaced: relevant,
    pass: same,
    percent: relevant === 0 ? 100 : Math.floor((1000 * same) / relevant) / 10,
    differences,
    unexplained: differences.filter(({ reason }) => reason === null).map(({ file }) => file),
    stale: results.map(({ file }) => file).filter((file) => file in reasons && !differing.has(file)),
    leftovers: results.flatMap(({ file, owned }) =>
      (owned ?? []).flatMap((run) => run.leftovers.map((command) => ({ file, command }))),
    ),
  }
}

export function describeOutcome(run) {
  if (run.timedOut) return 'timed out'
  if (run.error) return run.error
  return run.signal ?? `exit ${run.exitCode}`
}

/**
 * The most informative line of a failing test's output, with the next one if it ends in a colon.
 */
export function evidence(output) {
  const lines = output
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)
  if (lines.length === 0) return '(no output)'
  const telling = [/^(Uncaught )?\w*Error( \[\w+\])?: /, /^Mismatched .* function calls/, /^not ok /, /./]
    .map((pattern) => lines.findIndex((line) => pattern.test(line)))
    .find((index) => index >= 0)
  return lines[telling].endsWith(':') ? `${lines[telling]} ${lines[telling + 1] ?? ''}` : lines[telling]
}

export function renderText(summary) {
  const what = summary.all ? 'spawn, fork, exec or execFile' : 'spawn'
  const lines = ['']
  if (summary.excluded.length > 0) {
    lines.push('Left out, because they do not pass without the replacement either:')
    for (const { file, why } of summary.excluded) lines.push(`  ${file}  (${why})`)
    lines.push('')
  }
  lines.push(
    `Files: ${summary.files}; never call ${what}: ${summary.unaffected.length} (${summariseCalls(summary.unaffected)})`,
    '',
  )
  if (summary.differences.length > 0) {
    lines.push('Differences:')
    for (const difference of summary.differences) {
      lines.push(`  ${difference.file}  ${difference.outcome}, failed ${difference.failures}`)
      if (!difference.callsReplaced)
        lines.push('    does not call what is replaced: broken by the preload itself, not counted below')
      lines.push(`    reason: ${difference.reason ?? 'UNEXPLAINED, not in differences.json'}`)
      lines.push(`    seen:   ${difference.evidence}`)
    }
    lines.push('')
  }
  for (const file of summary.stale)
    lines.push(`Stale: ${file} is in differences.json, but does not differ. Remove it.`)
  for (const { file, command } of summary.leftovers) lines.push(`Left a process behind: ${file}: ${command}`)
  lines.push(
    `Same behaviour: ${summary.pass} of ${summary.callReplaced} files that call ${what} = ${summary.percent} %`,
  )
  return lines.join('\n')
}

function summariseCalls(unaffected) {
  const only = unaffected.filter(({ calls }) => calls.fork + calls.exec + calls.execFile > 0).length
  return `${only} call only fork, exec or execFile, ${unaffected.length - only} none of these`
}
