import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { seed } from '../../__test__/support/random.mjs'
import { Wrong } from './lib/loop.mjs'

const program = fileURLToPath(new URL('./pid-reuse/inside.mjs', import.meta.url))

export const what =
  'bystanders get the PIDs of dead roots, groups, keepers and bots: none is signalled, and no orphan is missed'
export const full = 1000

/**
 * Runs in its own PID namespace, where no other process takes PIDs. All processes end with the
 * namespace.
 */
export async function play(loop) {
  if (process.getuid() !== 0) {
    console.log('  skipped: it needs root to choose the next PID')
    return
  }
  // The shell is the init of the namespace. It reaps orphans, otherwise no PID would become free.
  const init = ['--pid', '--fork', '--mount-proc', '--kill-child', 'sh', '-c', '"$@"; exit $?', 'sh']
  const inside = spawn('unshare', [...init, process.execPath, program, String(loop.rounds)], {
    env: { ...process.env, SEED: String(seed) },
    stdio: ['pipe', 'pipe', 'inherit'],
    // Only the loop gets Ctrl-C.
    detached: true,
  })
  inside.stdin.on('error', () => {})
  loop.onStop(() => inside.stdin.end())
  createInterface({ input: inside.stdout }).on('line', (line) => {
    const { figures, failure } = JSON.parse(line)
    if (figures) Object.assign(loop.figures, figures)
    if (failure) loop.fail(new Wrong(failure))
    if (loop.isOver) inside.stdin.end()
  })
  const [code, signal] = await once(inside, 'close')
  if (code !== 0) throw new Wrong(`the namespace ended with ${code ?? signal}`)
}
