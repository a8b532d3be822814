// A damaged file in a place where no other can be written: its content is set aside once, however
// often the checkpoint is retried.
import { mkdirSync, readFileSync, renameSync, rmdirSync, statSync } from 'node:fs'
import { assert, describe, openWitness, program, test } from '../support/prelude.mjs'
import { openRegistry, until } from '../support/registry.mjs'

const limit = { timeout: 120_000 }

describe('a damaged file that cannot be replaced', { concurrency: 3 }, () => {
  const damages = {
    'is truncated': ['{"version":1,"entries":['],
    'has a malformed entry': ['{"version":1,"entries":[{"pid":"none"}]}\n'],
    // A file that is damaged again with other content is set aside too.
    'is damaged twice': ['{"version":1,"entries":[', 'not at all'],
  }
  for (const [what, contents] of Object.entries(damages)) {
    test(`and ${what} is set aside once for each content, and replaced when possible`, limit, async (t) => {
      const registry = openRegistry(t)
      // A folder blocks the write of the new file. It stands for a full disk and needs no root.
      const obstacle = `${registry.path}.tmp`
      mkdirSync(obstacle, { recursive: true })
      const events = []
      const count = (kind) => events.filter((event) => event.kind === kind).length
      const supervisor = registry.supervise().on('event', (event) => events.push(event))
      let witness
      for (const [i, content] of contents.entries()) {
        // In one step: a retry of the checkpoint must not find an empty file in between.
        registry.write(content, `${registry.path}.next`)
        renameSync(`${registry.path}.next`, registry.path)
        witness ??= await start(t, supervisor)
        const before = count('unwritable')
        await until(() => registry.setAside().length === i + 1, 'the file is set aside')
        await until(() => count('unwritable') >= before + 3, 'the checkpoint was retried')
        const aside = registry.setAside()
        assert.equal(aside.length, i + 1, aside.join('\n'))
        assert.equal(count('corrupt'), i + 1)
        assert.ok(aside.some((path) => readFileSync(path, 'utf8') === content))
      }
      assert.equal(witness.isGone(), false)
      rmdirSync(obstacle)
      await registry.mended(contents.length)
      await registry.has('the-run', 'running')
      assert.equal(registry.setAside().length, contents.length)
      assert.equal(statSync(registry.path).nlink, 1)
    })
  }
})

async function start(t, { spawnOwned }) {
  const witness = openWitness(t)
  spawnOwned(program('stays'), [witness.path], { runId: 'the-run', stdio: 'ignore' })
  await witness.ready(1)
  return witness
}
