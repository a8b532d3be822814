import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { seed } from '../../__test__/support/random.mjs'
import { Wrong } from './lib/loop.mjs'

const program = fileURLToPath(new URL('./pid-reuse/inside.mjs', import.meta.url))

export const what =
  'numbers of dead roots, groups, keepers and bots are given to strangers: none is touched, no orphan is missed'
export const full = 1000

/** In a PID namespace of its own, where nobody else takes numbers, and which takes everybody along when it ends. */
export async function play(loop) {
  if (process.getuid() !== 0) {
    console.log('  skipped: it takes root to choose the next PID')
    return
  }
  // The shell is the namespace's init: it reaps those that have lost their parents, else no number would become free.
  const init = ['--pid', '--fork', '--mount-proc', '--kill-child', 'sh', '-c', '"$@"; exit $?', 'sh']
  const inside = spawn('unshare', [...init, process.execPath, program, String(loop.rounds)], {
    env: { ...process.env, SEED: String(seed) },
    stdio: ['pipe', 'pipe', 'inherit'],
    // Ctrl-C is for us.
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
