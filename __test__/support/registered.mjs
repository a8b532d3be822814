// Processes to be registered.
import { spawn } from 'node:child_process'
import { fileHas } from './bots.mjs'
import { openWitness, program } from './prelude.mjs'

/** Starts a child with `child_process.spawn` and waits until it is ready. */
export async function child(
  t,
  { name = 'ignores-sigterm', processes = 2, detached = true, stdio = 'ignore' } = {},
) {
  const witness = openWitness(t)
  const started = spawn(program(name), [witness.path], { detached, stdio })
  t.after(() => started.kill('SIGKILL'))
  await witness.ready(processes)
  return { child: started, pid: started.pid, witness }
}

/** Resolves when the file has no entry. */
export const noEntry = (path) => fileHas(path, 0)
