// Processes with the name of an agent that are in no registry.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { program } from './fixtures.mjs'
import { removeFolder } from './system.mjs'
import { openWitness } from './witness.mjs'

/** A working directory, which is removed with the test. */
export function project(t) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'project-')))
  t.after(() => removeFolder(folder))
  return folder
}

/** The path of a program with that name, which stays. */
export function agent(t, name = 'claude') {
  const path = join(project(t), name)
  copyFileSync(program('stays'), path)
  return path
}

/**
 * The path of a script with that name, which lives as long as its child: `sh <script> <program>
 * <witness>`.
 */
export function agentScript(t, name) {
  const path = join(project(t), name)
  writeFileSync(path, 'exec 3>"$2"; "$1" "$2" & wait')
  return path
}

/**
 * A process that works in `cwd` and whose parent is gone, so that it is no descendant of the test.
 * It ends with the test at the latest.
 */
export async function stray(t, { cwd, name, args = [], by = (path) => [agent(t, name), path] }) {
  const witness = openWitness(t)
  const line = '"$@" </dev/null >/dev/null 2>&1 & echo $!'
  const command = ['-c', line, 'sh', ...by(witness.path), ...args]
  const shell = spawn('sh', command, { cwd, detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
  const [[text]] = await Promise.all([once(shell.stdout, 'data'), once(shell, 'exit')])
  await witness.ready(1)
  return { pid: Number(text), witness }
}

/** The same as a child of this process. */
export async function child(t, { cwd, name } = {}) {
  const witness = openWitness(t)
  let it
  // Before its folder is removed, because Windows refuses that while it runs.
  t.after(() => it?.kill('SIGKILL'))
  it = spawn(agent(t, name), [witness.path], { cwd, detached: true, stdio: 'ignore' })
  await witness.ready(1)
  return { pid: it.pid, witness }
}
