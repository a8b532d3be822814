// A fresh clone: npm can install its dependencies from the lock files, with every version of them.
import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isInstalled } from '../../scripts/dependencies.mjs'
import { root } from '../../scripts/tools.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { posixOnly } from '../support/system.mjs'

const NO_NPM = 'what npm installs does not depend on the system, and under Wine there is no npm'
const folders = ['.', join('__test__', 'peers')]
const read = (...path) => readFileSync(join(root, ...path), 'utf8')

for (const folder of folders) {
  const lock = JSON.parse(read(folder, 'package-lock.json'))

  describe(`the lock file of ${folder}`, () => {
    test('names no registry, because npm resolves tarballs at the configured one', () => {
      const resolved = Object.entries(lock.packages).filter(([, entry]) => entry.resolved !== undefined)
      assert.deepEqual(resolved, [])
    })

    test('has the optional packages of every platform, which `npm ci` requires', () => {
      const missing = Object.entries(lock.packages).flatMap(([path, { optionalDependencies = {} }]) =>
        Object.keys(optionalDependencies).filter((name) => !canFind(lock.packages, path, name)),
      )
      assert.deepEqual(missing, [])
    })

    test('is accepted by `npm ci` and `npm install`, which do not change it', posixOnly(NO_NPM), (t) => {
      const clone = copied(t, folder)
      npm(clone, 'ci', '--dry-run')
      npm(clone, 'install', '--package-lock-only')
      assert.equal(readFileSync(join(clone, 'package-lock.json'), 'utf8'), read(folder, 'package-lock.json'))
    })
  })
}

test('`npm ci` without install scripts installs what a build needs', posixOnly(NO_NPM), (t) => {
  const clone = copied(t, '.')
  npm(clone, 'ci', '--prefer-offline')
  const installed = readFileSync(join(clone, 'node_modules', '.package-lock.json'), 'utf8')
  assert.ok(isInstalled(JSON.parse(read('package-lock.json')), JSON.parse(installed)))
  const program = "require('esbuild').transformSync('let x: number', { loader: 'ts' }).code"
  assert.equal(
    execFileSync(process.execPath, ['-p', program], { cwd: clone, encoding: 'utf8' }),
    'let x;\n\n',
  )
  for (const name of ['@napi-rs/cli', 'typescript', '@biomejs/biome'])
    assert.ok(readdirSync(join(clone, 'node_modules', name)).length > 0, name)
})

describe('isInstalled', () => {
  const lock = {
    packages: {
      '': { version: '1' },
      'node_modules/a': { version: '2' },
      'node_modules/b': { version: '3', optional: true },
    },
  }
  const cases = [
    ['accepts the same versions', { 'node_modules/a': '2', 'node_modules/b': '3' }, true],
    ['accepts a missing optional package', { 'node_modules/a': '2' }, true],
    ['rejects a missing package', { 'node_modules/b': '3' }, false],
    ['rejects another version', { 'node_modules/a': '1' }, false],
    [
      'rejects another version of an optional package',
      { 'node_modules/a': '2', 'node_modules/b': '2' },
      false,
    ],
  ]
  for (const [name, versions, expected] of cases)
    test(name, () => {
      const packages = Object.fromEntries(
        Object.entries(versions).map(([path, version]) => [path, { version }]),
      )
      assert.equal(isInstalled(lock, { packages }), expected)
    })
})

/** Whether Node, in a module of the package at `path`, finds the package `name`. */
function canFind(packages, path, name) {
  if (`${path}/node_modules/${name}`.replace(/^\//, '') in packages) return true
  return path !== '' && canFind(packages, path.replace(/\/?node_modules\/(?:@[^/]+\/)?[^/]+$/, ''), name)
}

/** A temporary folder with the files of a clone that npm reads. */
function copied(t, folder) {
  const clone = mkdtempSync(join(tmpdir(), 'clone-'))
  t.after(() => rmSync(clone, { recursive: true, maxRetries: 10 }))
  for (const name of ['package.json', 'package-lock.json', '.npmrc'])
    if (existsSync(join(root, folder, name))) copyFileSync(join(root, folder, name), join(clone, name))
  return clone
}

function npm(cwd, ...args) {
  execFileSync('npm', [...args, '--ignore-scripts', '--no-audit', '--no-fund'], { cwd, stdio: 'pipe' })
}
