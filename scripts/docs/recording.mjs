// npm run docs:recording: records `npm run demo` in a terminal, as docs/demo.cast (asciicast v2)
// and docs/demo.svg, which README.md shows. `--render` only makes the SVG again from the cast.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root, say } from '../tools.mjs'
import { renderSvg } from './terminal-svg.mjs'

const cast = join(root, 'docs', 'demo.cast')
const size = { cols: 84, rows: 28 }

if (!process.argv.includes('--render')) writeFileSync(cast, await record())
writeFileSync(join(root, 'docs', 'demo.svg'), renderSvg(readFileSync(cast, 'utf8')))
say('wrote docs/demo.svg')

/**
 * Runs the demo in a terminal. Returns the cast: one line for each piece of output.
 *
 * The demo has its own PID namespace, whose init adopts what the demo's bots leave behind. Without
 * it, the keeper of this run would adopt these processes. It also makes the PIDs small and almost
 * the same in each recording.
 */
async function record() {
  // Imported here: to render needs no build.
  const { createSupervisor } = await import('spawn-owned')
  const registryPath = join(root, 'target', 'recording', 'process-registry.json')
  const { spawnOwned } = createSupervisor({ registryPath })
  const demo = join(root, 'examples', 'demo', 'demo.mjs')
  const { NO_COLOR, ...env } = process.env
  const namespace = ['--user', '--map-root-user', '--pid', '--fork', '--mount-proc']
  // The shell is the init. It must not `exec` the demo: `; exit` prevents that.
  const init = ['sh', '-c', '"$@"; exit $?', 'sh']
  const args = [...namespace, ...init, process.execPath, demo]
  const child = spawnOwned('unshare', args, { pty: size, env, timeoutMs: 120_000 })
  const since = performance.now()
  const events = []
  child.stdout.setEncoding('utf8').on('data', (data) => {
    events.push([Number(((performance.now() - since) / 1000).toFixed(2)), 'o', data])
  })
  const { ok, message } = await child.wait()
  if (!ok) throw new Error(`the demo failed: ${message}`)
  const header = { version: 2, width: size.cols, height: size.rows, title: 'npm run demo' }
  return `${[header, ...events].map((line) => JSON.stringify(line)).join('\n')}\n`
}
