// One file of Node's suite, run once: its own process, process group, working directory and temp
// directory.

import { spawn } from 'node:child_process'
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/** The preload that replaces spawn in a test. */
export const PRELOAD = fileURLToPath(new URL('replace-spawn.cjs', import.meta.url))
/** Helpers that still exist this long after the end of the test's process count as left over. */
const SETTLE_MS = 2000

/** The test files of a Node source tree, sorted. */
export function listTests(nodeSource, filter) {
  const folder = path.join(nodeSource, 'test', 'parallel')
  return readdirSync(folder)
    .filter((name) => /^test-child-process-.*\.m?js$/.test(name) && filter.test(name))
    .sort()
    .map((name) => path.join(folder, name))
}

/** The `// Flags:` and `// Env:` headers that Node's own runner uses. */
export function readHeaders(file) {
  const source = readFileSync(file, 'utf8').slice(0, 1500)
  const words = (key) =>
    source
      .match(new RegExp(`^// ${key}:[ \\t]+(.*)$`, 'm'))?.[1]
      .split(/\s+/)
      .filter(Boolean) ?? []
  return { flags: words('Flags'), env: Object.fromEntries(words('Env').map((pair) => pair.split('=', 2))) }
}

/**
 * Runs `file` and resolves with the result. It does not reject for a failing test.
 *
 * mode: 'plain' (no preload), 'owned' (spawn replaced) or 'control' (spawn replaced by Node's own:
 * the harness causes the differences).
 */
export async function runTest(file, { system, node, mode, all, slot, timeoutMs }) {
  const sandbox = mkdtempSync(path.join(tmpdir(), 'parity-'))
  const cwd = path.join(sandbox, 'cwd')
  const log = path.join(sandbox, 'calls')
  const outputFile = path.join(sandbox, 'output')
  mkdirSync(cwd)
  mkdirSync(path.join(sandbox, 'tmp'))
  writeFileSync(path.join(cwd, 'not-empty'), '') // one test expects `ls` to print something
  writeFileSync(log, '')
  const headers = readHeaders(file)
  const env = {
    ...Object.fromEntries(
      Object.entries(system.environment).filter(([key]) => !/^(npm_|NODE_|SPAWN_OWNED_)/i.test(key)),
    ),
    ...headers.env,
    NODE_TEST_DIR: system.path(path.join(sandbox, 'tmp')),
    TEST_THREAD_ID: String(slot),
    PARITY_LOG: system.path(log), // unique to this run; its left-over processes are found by it
  }
  if (mode !== 'plain') {
    env.NODE_OPTIONS = `--require ${JSON.stringify(system.path(PRELOAD))}`
    env.SPAWN_OWNED_REGISTRY = system.path(path.join(sandbox, 'registry', 'process-registry.json'))
    if (mode === 'control') env.PARITY_CONTROL = '1'
    if (all) env.PARITY_ALL = '1'
  }
  try {
    const command = [...system.command(node), ...headers.flags, system.path(file)]
    const outcome = await runOnce(command, { cwd, env, outputFile, timeoutMs })
    const text = readFileSync(outputFile, 'utf8')
    const told = [...text.matchAll(/^left running: (.*)$/gm)].map(([, command]) => command.trim())
    const leftovers = [...told, ...(await endLeftovers(`PARITY_LOG=${env.PARITY_LOG}`))]
    return {
      ...outcome,
      skipped: /^1\.\.0 # Skipped/m.test(text),
      leftovers,
      calls: countCalls(log),
      replaced: all ? ['spawn', 'fork', 'exec', 'execFile'] : ['spawn'],
      output: text,
    }
  } finally {
    removeSandbox(sandbox)
  }
}

/**
 * Retries: a keeper whose bot is gone may still be recording the end of its run, and rmSync lists a
 * folder only once.
 */
function removeSandbox(sandbox, tries = 20) {
  try {
    rmSync(sandbox, { recursive: true, force: true, maxRetries: 1 })
  } catch (error) {
    if (error.code !== 'ENOTEMPTY' || tries === 0) throw error
    removeSandbox(sandbox, tries - 1)
  }
}

/**
 * The output of `node args...`, and whether it succeeds. Through a file: node.exe fails with EBADF
 * on a Unix pipe.
 */
export async function askNode(args, { system, node, timeoutMs }) {
  const sandbox = mkdtempSync(path.join(tmpdir(), 'parity-'))
  const outputFile = path.join(sandbox, 'output')
  try {
    const command = [...system.command(node), ...args]
    const { passed } = await runOnce(command, {
      cwd: sandbox,
      env: system.environment,
      outputFile,
      timeoutMs,
    })
    return { passed, output: readFileSync(outputFile, 'utf8') }
  } finally {
    rmSync(sandbox, { recursive: true, force: true, maxRetries: 3 })
  }
}

function runOnce([program, ...args], { cwd, env, outputFile, timeoutMs }) {
  return new Promise((resolve) => {
    const startedAt = performance.now()
    let timedOut = false
    const output = openSync(outputFile, 'a')
    const child = spawn(program, args, { cwd, env, stdio: ['ignore', output, output], detached: true })
    closeSync(output)
    const timer = setTimeout(() => {
      timedOut = true
      endGroup(child.pid)
    }, timeoutMs)
    const finish = (exitCode, signal, error) => {
      clearTimeout(timer)
      endGroup(child.pid)
      const passed = exitCode === 0 && !timedOut
      resolve({
        passed,
        exitCode,
        signal,
        timedOut,
        error,
        durationMs: Math.round(performance.now() - startedAt),
      })
    }
    child.on('exit', (exitCode, signal) => finish(exitCode, signal))
    child.on('error', (error) => finish(null, null, error.message))
  })
}

/**
 * Also called right after the leader was reaped. The kernel assigns PIDs in sequence, so its PID is
 * not in use again yet.
 */
function endGroup(pid) {
  try {
    if (pid) process.kill(-pid, 'SIGKILL')
  } catch {
    // the group is empty
  }
}

/**
 * Processes that left the group of the run can outlive it. They are found by the run's mark in
 * their environment.
 */
async function endLeftovers(mark) {
  const deadline = performance.now() + SETTLE_MS
  let found = findMarked(mark)
  while (found.length > 0 && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 25))
    found = findMarked(mark)
  }
  for (const { pid } of found) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // gone in the meantime
    }
  }
  return found.map(({ command }) => command)
}

function findMarked(mark) {
  if (process.platform !== 'linux') return []
  const found = []
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue
    try {
      if (!readFileSync(`/proc/${name}/environ`, 'utf8').split('\0').includes(mark)) continue
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0').join(' ').trim()
      found.push({ pid: Number(name), command })
    } catch {
      // exited while we looked, or not ours to read
    }
  }
  return found
}

function countCalls(log) {
  const calls = { spawn: 0, fork: 0, exec: 0, execFile: 0 }
  for (const name of readFileSync(log, 'utf8').split('\n')) if (name) calls[name] += 1
  return calls
}
