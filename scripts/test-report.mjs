// The reporter of `npm test`: dots on a terminal, each failed test with its error as soon as it is
// known, and one line at the end, with a list of failed tests and of the reasons for skipped ones.
import { relative } from 'node:path'
import { inspect } from 'node:util'
import { root } from './tools.mjs'

const DOTS_PER_LINE = 100
/** How much of a test file's stderr is printed if one of its tests failed: its last characters. */
const COMPLAINT = 4000

/** @param {AsyncIterable<{ type: string, data: any }>} source events of node:test */
export async function* report(
  source,
  { isTerminal = process.stdout.isTTY, withDurations = false, withReasons = false } = {},
) {
  const began = performance.now()
  const counts = { passed: 0, failed: 0, skipped: 0 }
  const failures = []
  const reasons = new Map()
  const files = new Map()
  let dots = 0
  for await (const { type, data } of source) {
    const file = fileOf(data)
    if (type === 'test:stderr') file.complaint = (file.complaint + data.message).slice(-COMPLAINT)
    // Events come in the order of definition, so names at lower nesting are those of the
    // surrounding suites.
    if (type === 'test:start') file.path.splice(data.nesting, Number.POSITIVE_INFINITY, data.name)
    if (type !== 'test:pass' && type !== 'test:fail') continue
    // The outermost tests of a file run in sequence.
    if (data.nesting === 0) file.ms += data.details.duration_ms
    if (data.details.type === 'suite' && type === 'test:pass') continue
    const outcome = outcomeOf(type, data)
    if (outcome === undefined) continue
    counts[outcome]++
    if (outcome === 'skipped') count(reasons, reasonOf(data))
    if (isTerminal) yield `${outcome === 'failed' ? 'X' : '.'}${++dots % DOTS_PER_LINE === 0 ? '\n' : ''}`
    if (outcome !== 'failed') continue
    const failure = { file, path: [...file.path.slice(0, data.nesting), data.name] }
    failures.push(failure)
    yield `${isTerminal ? '\n' : ''}✗ ${nameOf(failure)} (${Math.round(data.details.duration_ms)} ms)\n`
    yield indented(why(data.details.error))
  }
  if (dots > 0) yield '\n'
  for (const { name, complaint } of new Set(failures.map(({ file }) => file)))
    if (complaint !== '') yield `stderr of ${name} ends with:\n${indented(complaint)}`
  const seconds = Math.round((performance.now() - began) / 1000)
  const { passed, failed, skipped } = counts
  yield `tests: ${passed} passed, ${failed} failed, ${skipped} skipped, ${seconds} s\n`
  if (withDurations)
    for (const { name, ms } of [...files.values()].filter((it) => it.ms > 0).sort((a, b) => b.ms - a.ms))
      yield `  ${(ms / 1000).toFixed(1).padStart(6)} s  ${name}\n`
  if (withReasons)
    for (const [reason, times] of [...reasons].sort(([, a], [, b]) => b - a))
      yield `  ${times} skipped: ${reason}\n`
  for (const failure of failures) yield `  failed: ${nameOf(failure)}\n`

  function fileOf({ file: absolute, name }) {
    const path = absolute ?? name ?? ''
    if (!files.has(path)) files.set(path, { name: relative(root, path), path: [], complaint: '', ms: 0 })
    return files.get(path)
  }
}

/** Undefined for a suite or file that failed only because a test in it failed. */
function outcomeOf(type, { skip, todo, details }) {
  if (type === 'test:pass') return skip !== undefined ? 'skipped' : 'passed'
  if (todo !== undefined) return 'skipped'
  return details.error.failureType === 'subtestsFailed' ? undefined : 'failed'
}

function reasonOf({ skip, todo }) {
  const reason = skip ?? todo
  return typeof reason === 'string' && reason !== '' ? reason : 'no reason given'
}

const count = (counts, key) => counts.set(key, (counts.get(key) ?? 0) + 1)

function why({ cause, message, exitCode, signal }) {
  // The process of the file ended without a failed test: it exited, or a signal killed it.
  if (exitCode !== undefined) return `its process ended with ${signal ?? `exit code ${exitCode}`}`
  return cause instanceof Error ? inspect(cause) : String(cause ?? message)
}

/** A file that failed as a whole has its own path as the name of a test. */
const nameOf = ({ file, path }) =>
  [file.name, ...path.filter((name) => relative(root, name) !== file.name)].join(' › ')

const indented = (text) => `${text.trimEnd().replaceAll(/^/gm, '    ')}\n`
