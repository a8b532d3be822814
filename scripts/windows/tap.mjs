// Reads the TAP output of Node's test runner: how many tests passed, which failed or were skipped,
// and why.

/** `finished` is false if the file ended before the runner: it crashed or was killed. */
export function readTap(text) {
  const count = (what) => Number(text.match(new RegExp(`^# ${what} (\\d+)$`, 'm'))?.[1] ?? 0)
  const passed = count('pass')
  return {
    finished: /^# tests \d+$/m.test(text),
    passed,
    failed: count('fail') + count('cancelled'),
    skipped: count('skipped') + count('todo'),
    skips: [...text.matchAll(/^\s*(?:not )?ok \d+ - (.*?) # SKIP ?(.*)$/gm)].map(([, name, reason]) => ({
      name,
      reason,
    })),
    failures: failures(text.split(/\r?\n/)),
  }
}

/**
 * The `not ok` lines, each with its block of details. A suite that fails because of its tests is
 * left out.
 */
function failures(lines) {
  const blocks = []
  for (const [index, line] of lines.entries()) {
    if (!/^\s*not ok /.test(line) || / # (SKIP|TODO)/.test(line)) continue
    const indent = line.length - line.trimStart().length
    const end = lines.findIndex((other, at) => at > index && other === `${' '.repeat(indent + 2)}...`)
    const block = lines.slice(index, end < 0 ? index + 1 : end)
    if (!block.some((detail) => detail.includes("failureType: 'subtestsFailed'")))
      blocks.push(block.join('\n'))
  }
  return blocks
}
