// Runs a test file in node.exe. Its processes are in its job, and end with the job.
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execute } from '../processes.mjs'
import { testFiles } from '../test-files.mjs'
import { root } from '../tools.mjs'
import { made, windowsPath } from './places.mjs'
import { readTap } from './tap.mjs'
import { freshFolder, launcher, serverCrashes, wineEnvironment } from './wine.mjs'

const LIMIT_MS = 240_000
const MAX_RUNS = 4

/**
 * Runs a file. If the server of Wine crashes meanwhile, the result says nothing about the file, so
 * it runs again. A failed test is never repeated.
 */
export async function runFile(node, file) {
  for (let run = 1; ; run++) {
    const crashes = serverCrashes()
    const result = await runOnce(node, file)
    if (serverCrashes() === crashes || run === MAX_RUNS) return result
    console.log(`${file} runs again: the server of Wine crashed`)
  }
}

async function runOnce(node, file) {
  const logs = join(made, 'logs')
  mkdirSync(logs, { recursive: true })
  const paths = ['out', 'err'].map((stream) => join(logs, `${file}.${stream}`))
  const began = performance.now()
  const { code, late } = await start(node, file, paths)
  const [out, err] = paths.map((path) => readFileSync(path, 'utf8'))
  const tap = readTap(out)
  const left = err.split(/\r?\n/).filter((line) => line.startsWith('left running: '))
  const ok = code === 0 && tap.finished && tap.failed === 0
  return { file, ok, code, late, left, out, err, seconds: (performance.now() - began) / 1000, ...tap }
}

/**
 * Files as stdout and stderr, because Node fails with EBADF on a Unix pipe. Not `node --test`: it
 * would read the output of its files from pipes, and start a second node.exe for each. Its own
 * session keeps Wine away from our terminal, and Ctrl-C away from Wine.
 */
function start(node, file, paths) {
  const [out, err] = paths.map((path) => openSync(path, 'w'))
  const [program, ...launch] = launcher
  const test = windowsPath(join(root, testFiles.get(file)))
  const registry = `${freshFolder(file)}\\process-registry.json`
  const args = [...launch, windowsPath(node), '--test-reporter=tap', test]
  const env = { ...wineEnvironment, SPAWN_OWNED_REGISTRY: registry }
  const ended = execute(program, args, LIMIT_MS, { env, stdio: ['ignore', out, err], detached: true })
  closeSync(out)
  closeSync(err)
  return ended
}
