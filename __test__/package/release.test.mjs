// The checks before a release: versions, changelog, and packed files.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { checkChangelog, checkFiles, checkVersions } from '../../scripts/release/checks.mjs'

describe('checkVersions handles', () => {
  const facts = ({ main, ...others } = {}) => ({
    main: { version: '1.2.3', optionalDependencies: { '@x/a': '1.2.3' }, ...main },
    lock: { version: '1.2.3' },
    crates: [{ file: 'Cargo.toml', version: '1.2.3' }],
    platforms: [{ name: '@x/a', version: '1.2.3' }],
    ...others,
  })
  const cases = [
    ['the same version in all files', {}, []],
    ['the same version in the tag', { tag: 'v1.2.3' }, []],
    ['another tag', { tag: 'v1.2.4' }, ['the tag is 1.2.4, and package.json is 1.2.3']],
    [
      'an old lock',
      { lock: { version: '1.2.2' } },
      ['package-lock.json is 1.2.2, and package.json is 1.2.3'],
    ],
    [
      'a crate without a version',
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
      'a platform that is no optional dependency',
      { main: { optionalDependencies: {} } },
      ['@x/a is not among the optionalDependencies'],
    ],
    [
      'an optional dependency without a package',
      { platforms: [] },
      ['@x/a is among the optionalDependencies, and there is no such package'],
    ],
  ]
  for (const [name, change, complaints] of cases)
    test(name, () => assert.deepEqual(checkVersions(facts(change)), complaints))
})

describe('checkChangelog handles', () => {
  const cases = [
    ['changes under the version', '## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- x\n', 'v1.2.3', undefined],
    ['the same without a tag', '## [1.2.3] - 2026-01-31\n\n- x\n', undefined, undefined],
    ['no date', '## [1.2.3]\n\n- x\n', 'v1.2.3', /when 1\.2\.3 was released/],
    [
      'a section without changes',
      '## [1.2.3] - 2026-01-31\n\n## [1.2.2] - 2026-01-01\n- x\n',
      'v1.2.3',
      /nothing of/,
    ],
    ['changes under Unreleased without a tag', '## [Unreleased]\n\n- x\n', undefined, undefined],
    ['changes under Unreleased with a tag', '## [Unreleased]\n\n- x\n', 'v1.2.3', /no section/],
    [
      'no changes under Unreleased',
      '## [Unreleased]\n\n## [1.2.2] - 2026-01-01\n\n- x\n',
      undefined,
      /nothing of/,
    ],
    ['another version with the same prefix', '## [1.2.30] - 2026-01-31\n\n- x\n', 'v1.2.3', /no section/],
  ]
  for (const [name, text, tag, complaint] of cases)
    test(name, () => {
      const complaints = checkChangelog(`# Changelog\n\n${text}`, '1.2.3', tag)
      if (complaint) assert.match(complaints.join('\n'), complaint)
      else assert.deepEqual(complaints, [])
    })
})

describe('checkFiles handles', () => {
  const file = (path, mode = 0o644) => ({ path, mode })
  const expected = ['dist', 'README.md', 'keeper']
  const fine = [file('dist/index.js'), file('README.md'), file('keeper', 0o755)]
  const cases = [
    ['the expected files', fine, []],
    ['a missing file', fine.slice(1), ['dist is missing']],
    ['an unexpected file', [...fine, file('distant.js')], ['distant.js should not be in it']],
    [
      'a keeper that is not executable',
      [...fine.slice(0, 2), file('keeper', 0o644)],
      ['keeper is not executable'],
    ],
  ]
  for (const [name, files, complaints] of cases)
    test(name, () => assert.deepEqual(checkFiles(files, expected, ['keeper']), complaints))
})
