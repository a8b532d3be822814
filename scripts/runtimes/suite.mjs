// Runs a test file in a runtime.
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs'
import { basename, delimiter, dirname, join } from 'node:path'
import { execute } from '../processes.mjs'
import { readResults } from './junit.mjs'
import { made } from './runtimes.mjs'

const LIMIT_MS = 300_000

export async function runFile(runtime, program, file) {
  const folder = join(made, 'logs', runtime.name)
  mkdirSync(folder, { recursive: true })
  const [results, log] = ['xml', 'log'].map((kind) => join(folder, `${basename(file, '.test.mjs')}.${kind}`))
  rmSync(results, { force: true })
  const began = performance.now()
  const outcome = await start(program, runtime.args(file, results), log)
  const counts = readResults(existsSync(results) ? readFileSync(results, 'utf8') : '')
  const said = readFileSync(log, 'utf8')
  const ok = outcome.code === 0 && counts.failed === 0 && counts.passed + counts.skipped > 0
  return { file, log, said, ok, seconds: (performance.now() - began) / 1000, ...outcome, ...counts }
}

/** Puts the tested runtime into the PATH, as `node`, `bun` or `deno`. */
function start(program, args, log) {
  const out = openSync(log, 'w')
  const path = `${dirname(program)}${delimiter}${process.env.PATH}`
  const env = { ...process.env, PATH: path, NO_COLOR: '1' }
  const ended = execute(program, args, LIMIT_MS, { env, stdio: ['ignore', out, out] })
  closeSync(out)
  return ended
}
