// The example projects: strict TypeScript that Node can also run without a build.
import { execFile, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { sourcesWithPeers } from '../peers/index.mjs'
import { builtExample } from '../support/examples.mjs'
import { assert, test } from '../support/prelude.mjs'
import { NO_LINKS, NO_SIGNALS, nodeOnly, posixOnly } from '../support/system.mjs'

const require = createRequire(import.meta.url)
const root = fileURLToPath(new URL('../..', import.meta.url))

test('the examples compile with strict', posixOnly(NO_LINKS, { timeout: 60_000 }), () => {
  // Its packages are in a folder of its own.
  sourcesWithPeers('fleet')
  const typescript = dirname(require.resolve('typescript/package.json'))
  const { bin } = JSON.parse(readFileSync(join(typescript, 'package.json'), 'utf8'))
  const args = [join(typescript, bin.tsc), '-p', join(root, 'examples')]
  const { stdout, status } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  assert.equal(stdout, '')
  assert.equal(status, 0)
})

const forNode = nodeOnly('the example is written for Node', posixOnly(NO_SIGNALS, { timeout: 60_000 }))

test(
  'examples/service: five hooks share one worker, which is started again after a crash',
  forNode,
  async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [builtExample('service', 'main')])
    const workers = [...stdout.matchAll(/(started|found) worker (\d+)/g)].map(([, how, pid]) => ({
      how,
      pid,
    }))
    assert.equal(workers.length, 6)
    const started = workers.filter(({ how }) => how === 'started').map(({ pid }) => pid)
    // One of the five starts it, and the hook after the crash.
    assert.equal(new Set(started).size, 2)
    assert.equal(new Set(workers.slice(0, 5).map(({ pid }) => pid)).size, 1)
    assert.match(stdout, /Stopped the worker by its name: cancelled\. Entries left in the registry: 0/)
  },
)
