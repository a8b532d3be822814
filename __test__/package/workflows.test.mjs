// The workflows of GitHub: their machines and actions exist, and dependencies are updated.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { targets } from '../../scripts/targets/list.mjs'
import { root } from '../../scripts/tools.mjs'

const read = (...path) => readFileSync(join(root, '.github', ...path), 'utf8')

/** Machines of GitHub. macos-13 and macos-14 are retired. */
const MACHINES = [
  ...['ubuntu-latest', 'ubuntu-24.04-arm', 'macos-15', 'macos-15-intel', 'windows-latest', 'windows-11-arm'],
]

/** The oldest major version of each action that runs on a supported Node. */
const ACTIONS = {
  'actions/checkout': 6,
  'actions/setup-node': 6,
  'actions/setup-python': 6,
  'actions/upload-artifact': 6,
  'actions/download-artifact': 7,
  'Swatinem/rust-cache': 2,
  'taiki-e/install-action': 2,
}

for (const name of readdirSync(join(root, '.github', 'workflows'))) {
  const text = read('workflows', name)
  const all = (pattern) => [...text.matchAll(pattern)].map(([, value]) => value)

  describe(name, () => {
    test('runs on machines that exist', () => {
      const named = all(/\bos: ([\w.-]+)/g)
      const listed = all(/\bos: \[(.+)\]/g).flatMap((list) => list.split(', '))
      const direct = all(/runs-on: ([\w.-]+)$/gm)
      const machines = new Set([...named, ...listed, ...direct])
      assert.ok(machines.size > 0)
      assert.deepEqual(
        [...machines].filter((machine) => !MACHINES.includes(machine)),
        [],
      )
    })

    test('uses actions that run on a supported Node', () => {
      for (const use of all(/uses: (\S+)/g)) {
        // This one has branches instead of versions.
        if (use === 'dtolnay/rust-toolchain@stable') continue
        const [action, version] = use.split('@v')
        assert.ok(Number(version) >= ACTIONS[action], use)
      }
    })

    test('reads the repository only', () => assert.match(text, /^permissions:\n {2}contents: read$/m))
  })
}

test('the release workflow builds every platform, and stages the packages', () => {
  const text = read('workflows', 'release.yml')
  for (const { platform, os } of targets)
    if (os !== 'linux') assert.ok(text.includes(`platform: ${platform},`), platform)
  assert.match(text, /run: npm run build:targets/)
  assert.match(text, /run\.mjs --tag "\$GITHUB_REF_NAME" --stage/)
  assert.doesNotMatch(text, /npm publish/)
})

test('Dependabot updates every lock file and the actions', () => {
  const text = read('dependabot.yml')
  for (const ecosystem of ['npm', 'cargo', 'github-actions'])
    assert.ok(text.includes(`package-ecosystem: ${ecosystem}\n`), ecosystem)
  for (const folder of ['"/__test__/peers"', '"/fuzz"', '"/models"']) assert.ok(text.includes(folder), folder)
})
