// Runs a test file in node.exe. What it starts is in its job, and ends with that.
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execute } from '../processes.mjs'
import { root } from '../tools.mjs'
import { made, windowsPath } from './places.mjs'
import { readTap } from './tap.mjs'
import { freshFolder, launcher, wineEnvironment } from './wine.mjs'

const LIMIT_MS = 240_000

export async function runFile(node, file) {
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
 * Files as stdout and stderr: Node fails with EBADF at a Unix pipe. Not `node --test`: it would read what its files say
 * from pipes, and start a second node.exe for each. A session of its own keeps Wine away from our terminal, and Ctrl-C from Wine.
 */
function start(node, file, paths) {
  const [out, err] = paths.map((path) => openSync(path, 'w'))
  const [program, ...launch] = launcher
  const test = windowsPath(join(root, '__test__', file))
  const registry = `${freshFolder(file)}\\process-registry.json`
  const args = [...launch, windowsPath(node), '--test-reporter=tap', test]
  const env = { ...wineEnvironment, SPAWN_OWNED_REGISTRY: registry }
  const ended = execute(program, args, LIMIT_MS, { env, stdio: ['ignore', out, err], detached: true })
  closeSync(out)
  closeSync(err)
  return ended
}
