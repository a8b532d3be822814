// Runs test files in node.exe, one process each.
import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../tools.mjs'
import { made, windowsPath } from './places.mjs'
import { readTap } from './tap.mjs'
import { freshFolder, launcher, wineEnvironment } from './wine.mjs'

const limitMs = 240_000
const started = new Set()

/** Runs them all, so many at once; `each` hears of every result as it comes. */
export async function runFiles(node, files, atOnce, each) {
  const waiting = [...files]
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift())
      each(await runFile(node, file))
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

/** Their jobs end with them, and everything in these. */
export function endAll() {
  for (const child of started) child.kill('SIGKILL')
}

async function runFile(node, file) {
  const logs = join(made, 'logs')
  mkdirSync(logs, { recursive: true })
  const paths = ['out', 'err'].map((stream) => join(logs, `${file}.${stream}`))
  const began = performance.now()
  const { code, late } = await execute(node, file, paths)
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
function execute(node, file, paths) {
  const [out, err] = paths.map((path) => openSync(path, 'w'))
  const [program, ...launch] = launcher
  const test = windowsPath(join(root, '__test__', file))
  const registry = `${freshFolder(file)}\\process-registry.json`
  const env = { ...wineEnvironment, SPAWN_OWNED_REGISTRY: registry }
  const child = spawn(program, [...launch, windowsPath(node), '--test-reporter=tap', test], {
    cwd: root,
    env,
    stdio: ['ignore', out, err],
    detached: true,
  })
  closeSync(out)
  closeSync(err)
  started.add(child)
  let late = false
  const timer = setTimeout(() => {
    late = true
    child.kill('SIGKILL')
  }, limitMs)
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code) => {
      clearTimeout(timer)
      started.delete(child)
      resolve({ code, late })
    })
  })
}
