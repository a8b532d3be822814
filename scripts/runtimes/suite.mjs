// Runs test files in a runtime, one process each.
import { spawn } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs'
import { basename, delimiter, dirname, join } from 'node:path'
import { root } from '../tools.mjs'
import { readResults } from './junit.mjs'
import { made } from './runtimes.mjs'

const limitMs = 300_000
const started = new Set()

/** Runs them all, so many at once; `each` hears of every result as it comes. */
export async function runFiles(runtime, program, files, atOnce, each) {
  const waiting = [...files]
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift())
      each(await runFile(runtime, program, file))
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

/** Their runs end with them. */
export function endAll() {
  for (const child of started) child.kill('SIGKILL')
}

async function runFile(runtime, program, file) {
  const folder = join(made, 'logs', runtime.name)
  mkdirSync(folder, { recursive: true })
  const [results, log] = ['xml', 'log'].map((kind) => join(folder, `${basename(file, '.test.mjs')}.${kind}`))
  rmSync(results, { force: true })
  const began = performance.now()
  const outcome = await execute(program, runtime.args(file, results), log)
  const counts = readResults(existsSync(results) ? readFileSync(results, 'utf8') : '')
  const said = readFileSync(log, 'utf8')
  const ok = outcome.code === 0 && counts.failed === 0 && counts.passed + counts.skipped > 0
  return { file, log, said, ok, seconds: (performance.now() - began) / 1000, ...outcome, ...counts }
}

/** Whoever looks for `node`, `bun` or `deno` finds the one that is tested. */
function execute(program, args, log) {
  const out = openSync(log, 'w')
  const path = `${dirname(program)}${delimiter}${process.env.PATH}`
  const child = spawn(program, args, {
    cwd: root,
    env: { ...process.env, PATH: path, NO_COLOR: '1' },
    stdio: ['ignore', out, out],
  })
  closeSync(out)
  started.add(child)
  let late = false
  const timer = setTimeout(() => {
    late = true
    child.kill('SIGKILL')
  }, limitMs)
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code, signal) => {
      clearTimeout(timer)
      started.delete(child)
      resolve({ code, signal, late })
    })
  })
}
