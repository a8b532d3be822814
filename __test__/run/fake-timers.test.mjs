// Fake timers of a test runner stop the clocks of the bot. The processes of a run continue, so their
// events must arrive in real time.
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../../scripts/tools.mjs'
import { freshRegistry } from '../support/bots.mjs'
import { assert, script, test } from '../support/prelude.mjs'
import { forScripts } from '../support/system.mjs'

test('runs start, report and end while all timers and clocks of the bot stand still', () => {
  const args = [...forScripts, script('stops-its-clocks.mjs'), freshRegistry()]
  const { stdout, stderr, signal } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 })
  assert.equal(signal, null, `the bot waits forever:\n${stdout}${stderr}`)
  assert.deepEqual(JSON.parse(stdout || `${JSON.stringify(stderr)}`), {
    output: 'hello',
    closed: 0,
    reason: 'exit',
    missing: 'ENOENT',
    cancelled: 'manual-cancel',
    late: { reason: 'overall-timeout', isTimed: true },
    replaced: ['manual-cancel', 'exit'],
    exec: 'shell',
    shutdown: 1,
  })
})

test('the library takes timers and clocks from ts/util/timers.ts, which captures them at import', () => {
  const GLOBAL =
    /(?<![\w.'])(setTimeout|setInterval|setImmediate|clearTimeout|clearInterval)\(|process\.nextTick|performance\.now|Date\.now|node:timers|queueMicrotask/
  const files = readdirSync(join(root, 'ts'), { recursive: true })
    .filter((path) => path.endsWith('.ts') && !/^cli\b/.test(path) && !path.endsWith('timers.ts'))
    .map((path) => [path, readFileSync(join(root, 'ts', path), 'utf8')])
  assert.ok(files.length > 40)
  for (const [path, text] of files) {
    const imported = /import \{([^}]+)\} from '(?:\.\.?\/)+(?:util\/)?timers\.js'/.exec(text)?.[1] ?? ''
    const used = text
      .split('\n')
      .filter((line) => !/^\s*(\/\/|\/?\*)/.test(line))
      .flatMap((line) => GLOBAL.exec(line)?.slice(0, 2) ?? [])
      .filter((name) => name !== undefined && !new RegExp(`\\b${name.replace('(', '\\b')}`).test(imported))
    assert.deepEqual(used, [], `ts/${path}`)
  }
})
