// Prints a table: per folder, and below it the modules that make decisions, each of which has its
// own tests.

/** Modules without system calls: code that is not executed there is not tested at all. */
const decisions = new Set(
  [
    'src/run/lifecycle.rs src/run/idle_timeout.rs src/run/reason.rs src/run/signal.rs src/run/mod.rs',
    'src/reap/classify.rs src/reap/classify/reason.rs src/reap/suspects.rs src/reap/suspects/names.rs',
    'src/registry/table.rs src/registry/local_entries.rs src/registry/claim_state.rs src/registry/leases.rs',
    'src/registry/import.rs src/registry/cached_record.rs',
    'src/identity/stat.rs src/identity/token.rs src/identity/macos/kinfo.rs src/identity/macos/procargs.rs',
    'src/contain/cookie.rs src/contain/tree.rs src/contain/shell.rs src/contain/kqueue_members.rs',
    'src/contain/outside/unix/claim.rs src/contain/cgroup/place.rs src/contain/cgroup/name.rs',
    'src/keeper/protocol.rs src/keeper/protocol/frame.rs src/ports/table.rs src/errno/windows.rs src/spawn/requested_containment.rs',
    'src/spawn/windows/search.rs src/spawn/windows/quote.rs src/spawn/windows/environment.rs',
    'ts/util/validation.ts ts/util/windows.ts ts/util/signals.ts ts/native/platform-packages.ts',
    'ts/run/spawn-options.ts ts/run/run-filters.ts ts/run/containment-options.ts',
    'ts/run/cancel-options.ts ts/run/run-exit.ts ts/registry/record-exit.ts',
    'ts/orphans/suspect-patterns.ts ts/service/service-options.ts',
    'ts/cli/parse.ts ts/cli/units.ts ts/cli/event-log.ts ts/cli/help.ts ts/cli/text.ts',
  ]
    .join(' ')
    .split(' '),
)

/**
 * `files`: by path, `{ lines, covered, missed }`; `missed` lists the lines that were not executed.
 */
export function print(title, files) {
  const rooms = new Map()
  for (const [path, { lines, covered }] of files) {
    const room = path.split('/').length > 2 ? path.split('/').slice(0, 2).join('/') : path
    const sum = rooms.get(room) ?? { lines: 0, covered: 0 }
    rooms.set(room, { lines: sum.lines + lines, covered: sum.covered + covered })
  }
  console.log(`\n${title}\n`)
  for (const [room, sum] of [...rooms].sort()) console.log(row(room, sum))
  console.log(row('all', [...rooms.values()].reduce(add)))
  console.log('\nof these, decisions\n')
  for (const [path, file] of [...files].sort()) {
    if (decisions.has(path)) console.log(row(path, file), ranges(file.missed))
  }
}

function add(one, other) {
  return { lines: one.lines + other.lines, covered: one.covered + other.covered }
}

function row(name, { lines, covered }) {
  const share = lines === 0 ? '–' : `${((100 * covered) / lines).toFixed(1)} %`
  return `${name.padEnd(40)} ${String(covered).padStart(6)} of ${String(lines).padStart(6)} ${share.padStart(8)}`
}

/** `3-5, 9` */
function ranges(lines) {
  const found = []
  for (const line of lines) {
    const last = found.at(-1)
    if (last && last[1] === line - 1) last[1] = line
    else found.push([line, line])
  }
  const text = found.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(', ')
  return text && `not ${text}`
}
