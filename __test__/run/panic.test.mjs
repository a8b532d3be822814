// A panic in the addon becomes a JavaScript exception, and the bot continues.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { buildFailpointsAddon, withoutFailpoints } from '../support/failpoints.mjs'

test('a panic in the addon throws an Error and does not end the bot', {
  timeout: 600_000,
  skip: withoutFailpoints,
}, (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'panic-'))
  t.after(() => rmSync(directory, { recursive: true, maxRetries: 10 }))
  const addon = join(directory, 'addon.node')
  buildFailpointsAddon(addon)

  const code = `const addon = require(${JSON.stringify(addon)})
    const seen = []
    for (let i = 0; i < 3; i++) {
      try {
        addon.panic()
      } catch (error) {
        seen.push(error instanceof Error, error.message)
      }
    }
    setImmediate(() => console.log(JSON.stringify(seen)))`
  const bot = spawnSync(process.execPath, ['-e', code], { encoding: 'utf8' })
  assert.deepEqual([bot.status, bot.signal], [0, null], bot.stderr)
  const seen = JSON.parse(bot.stdout)
  assert.equal(seen.length, 6)
  for (let i = 0; i < 6; i += 2) {
    assert.equal(seen[i], true)
    assert.match(seen[i + 1], /a failpoint was hit/)
  }
})
