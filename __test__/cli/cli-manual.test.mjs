// What the command line prints about itself: help and man page refer to files of the package, and
// explain the words of the project.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freshRegistry } from '../support/bots.mjs'
import { cli, spawnOwnedCli as so } from '../support/cli.mjs'
import { describe, sources, test } from '../support/sources.mjs'

const { COMMANDS, JSON_FIELDS, manPage, withFlags } = await sources(
  'cli/command-spec',
  'cli/man-page',
  'cli/library-errors',
)
const root = fileURLToPath(new URL('../..', import.meta.url))
const { files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
/** npm packs these even if `files` does not name them. */
const PACKED = [...files, 'README.md', 'LICENSE', 'package.json']

const helps = async () => {
  const all = await Promise.all(
    [['--help'], ...COMMANDS.map(({ name }) => [name, '--help'])].map((args) => so('x', args)),
  )
  return all.map(({ stdout }) => stdout)
}

describe('help and man page', { timeout: 60_000 }, () => {
  test('name the man page, which exists', async () => {
    for (const help of await helps()) {
      const [, path] = /^Manual: (?:man )?(.+)$/m.exec(help)
      assert.equal(path, join(cli, '..', 'spawn-owned.1'))
      assert.ok(existsSync(path))
    }
  })

  test('refer only to files that are packed, and to no page on the web', async () => {
    const page = manPage('1.2.3').join('\n').replaceAll('\\-', '-')
    for (const text of [page, ...(await helps())]) {
      assert.doesNotMatch(text, /https?:|www\./)
      for (const [name] of text.matchAll(/[\w/-]+(?:\.d)?\.(?:md|ts|html)\b/g)) {
        assert.ok(PACKED.includes(name.split('/')[0]), name)
        assert.ok(existsSync(join(root, name)), name)
      }
    }
  })

  test('explain every name in the JSON of a command', () => {
    const known = JSON_FIELDS.flatMap(([name]) => name.split(', '))
    for (const { name, json = '' } of COMMANDS)
      for (const [word] of json.matchAll(/\b[A-Z]\w+/g)) assert.ok(known.includes(word), `${name}: ${word}`)
  })

  test('have no internal words', async () => {
    const page = manPage('1.2.3').join('\n')
    for (const text of [page, ...(await helps())])
      assert.doesNotMatch(text, /\b(tier|blank|cookie|drop|zygote)\b/i)
  })
})

describe('an error of the library gets flags:', () => {
  for (const [message, expected] of [
    [
      'choose another path with options.registryPath or SPAWN_OWNED_REGISTRY.',
      'choose another path with --registry or SPAWN_OWNED_REGISTRY.',
    ],
    ['choose another registryPath.', 'choose another --registry.'],
    ['options.runId "a" names a run that is alive.', '--run-id "a" names a run that is alive.'],
    ['spawn sh ENOENT: options.cwd "/x" does not exist', 'spawn sh ENOENT: --cwd "/x" does not exist'],
    ['options.pty needs a terminal', '--pty needs a terminal'],
    ["options.onOwnerExit is 'keep', but … Use 'kill'.", '--keep is given, but … omit --keep.'],
    ["which options.limits and containment 'cgroup' need: …", 'which --memory and --processes need: …'],
    ["Omit options.limits and containment: 'cgroup'", 'Omit --memory and --processes'],
    ['or set options.eventLogPath (null: no log).', 'or choose another --registry.'],
  ])
    test(expected, () => assert.equal(withFlags(message), expected))

  test('run --run-id of a live run', async () => {
    const inner = [process.execPath, cli, 'run', '--run-id', 'a', '--', process.execPath, '-e', '0']
    const { code, stderr } = await so(freshRegistry(), ['run', '--run-id', 'a', '--', ...inner])
    assert.equal(code, 125)
    assert.match(stderr, /^spawn-owned: --run-id "a" names a run that is alive\./)
  })
})
