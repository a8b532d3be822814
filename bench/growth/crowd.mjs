/** Idle processes that only make the host larger. */

import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const source = fileURLToPath(new URL('../../__test__/fixtures/idle-processes.c', import.meta.url))

/** Compiles the program that starts the processes into the directory. */
export function compileCrowd(directory) {
  const program = join(directory, 'crowd')
  execFileSync('cc', ['-O2', '-o', program, source])
  return program
}

/** Runs `work` beside `count` processes, which end with it, or with the bench. */
export async function besideCrowd(program, count, work) {
  const crowd = spawn(program, [String(count)], { stdio: ['pipe', 'pipe', 'inherit'] })
  const exited = once(crowd, 'exit')
  try {
    await once(createInterface({ input: crowd.stdout }), 'line')
    await work()
  } finally {
    crowd.stdin.end()
    await exited
  }
}
