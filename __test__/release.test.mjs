// What keeps a release from being published: versions that differ, changes that are not told, files that are missing or too many.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { checkChangelog, checkFiles, checkVersions } from '../scripts/release/checks.mjs'

describe('versions', () => {
  const facts = ({ main, ...others } = {}) => ({
    main: { version: '1.2.3', optionalDependencies: { '@x/a': '1.2.3' }, ...main },
    lock: { version: '1.2.3' },
    crates: [{ file: 'Cargo.toml', version: '1.2.3' }],
    platforms: [{ name: '@x/a', version: '1.2.3' }],
    ...others,
  })
  const cases = [
    ['the same everywhere', {}, []],
    ['and in the tag', { tag: 'v1.2.3' }, []],
    ['another tag', { tag: 'v1.2.4' }, ['the tag is 1.2.4, and package.json is 1.2.3']],
    [
      'an old lock',
      { lock: { version: '1.2.2' } },
      ['package-lock.json is 1.2.2, and package.json is 1.2.3'],
    ],
    [
      'a crate without one',
      { crates: [{ file: 'Cargo.lock' }] },
      ['Cargo.lock is undefined, and package.json is 1.2.3'],
    ],
    [
      'an old platform',
      { platforms: [{ name: '@x/a', version: '1.2.2' }] },
      ['npm: @x/a is 1.2.2, and package.json is 1.2.3'],
    ],
    [
      'a range',
      { main: { optionalDependencies: { '@x/a': '^1.2.3' } } },
      ['optionalDependencies: @x/a is ^1.2.3, and package.json is 1.2.3'],
    ],
    [
      'a platform nobody asks for',
      { main: { optionalDependencies: {} } },
      ['@x/a is not among the optionalDependencies'],
    ],
    [
      'a platform that is not there',
      { platforms: [] },
      ['@x/a is among the optionalDependencies, and there is no such package'],
    ],
  ]
  for (const [name, change, complaints] of cases)
    test(name, () => assert.deepEqual(checkVersions(facts(change)), complaints))
})

describe('changelog', () => {
  const cases = [
    ['changes under the version', '## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- x\n', 'v1.2.3', undefined],
    ['the same without a tag', '## [1.2.3] - 2026-01-31\n\n- x\n', undefined, undefined],
    ['no date', '## [1.2.3]\n\n- x\n', 'v1.2.3', /when 1\.2\.3 was released/],
    ['nothing to tell', '## [1.2.3] - 2026-01-31\n\n## [1.2.2] - 2026-01-01\n- x\n', 'v1.2.3', /nothing of/],
    ['not moved yet', '## [Unreleased]\n\n- x\n', undefined, undefined],
    ['not moved, but tagged', '## [Unreleased]\n\n- x\n', 'v1.2.3', /no section/],
    ['empty', '## [Unreleased]\n\n## [1.2.2] - 2026-01-01\n\n- x\n', undefined, /nothing of/],
    ['another version that looks alike', '## [1.2.30] - 2026-01-31\n\n- x\n', 'v1.2.3', /no section/],
  ]
  for (const [name, text, tag, complaint] of cases)
    test(name, () => {
      const complaints = checkChangelog(`# Changelog\n\n${text}`, '1.2.3', tag)
      if (complaint) assert.match(complaints.join('\n'), complaint)
      else assert.deepEqual(complaints, [])
    })
})

describe('files', () => {
  const file = (path, mode = 0o644) => ({ path, mode })
  const expected = ['dist', 'README.md', 'keeper']
  const fine = [file('dist/index.js'), file('README.md'), file('keeper', 0o755)]
  const cases = [
    ['as they should be', fine, []],
    ['one is missing', fine.slice(1), ['dist is missing']],
    ['one too many', [...fine, file('distant.js')], ['distant.js should not be in it']],
    ['not executable', [...fine.slice(0, 2), file('keeper', 0o644)], ['keeper is not executable']],
  ]
  for (const [name, files, complaints] of cases)
    test(name, () => assert.deepEqual(checkFiles(files, expected, ['keeper']), complaints))
})
