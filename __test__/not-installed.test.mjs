// Where the native part is looked for, and what is said when it is not there.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { builtFolder } from '../scripts/packages.mjs'
import { packageName, targets, thisTarget } from '../scripts/targets/list.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const GNU = '@spawn-owned/linux-x64-gnu'
const MUSL = '@spawn-owned/linux-x64-musl'

/** A project in which spawn-owned is installed as from npm, with packages that are there but do not load. */
function project(t, broken = []) {
  const folder = mkdtempSync(join(tmpdir(), 'not-installed-'))
  t.after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))
  const main = join(folder, 'node_modules', 'spawn-owned')
  cpSync(join(root, 'dist'), join(main, 'dist'), { recursive: true })
  copyFileSync(join(root, 'package.json'), join(main, 'package.json'))
  for (const name of broken) place(folder, name, (file) => writeFileSync(file, `not an addon: ${name}`))
  return folder
}

function place(folder, name, makeAddon) {
  const directory = join(folder, 'node_modules', name)
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'package.json'), JSON.stringify({ name, version: '0.0.0' }))
  makeAddon(join(directory, 'spawn-owned.node'))
}

/** Copies what was built for this machine into a directory of the project. */
function copyBuild(directory) {
  const target = thisTarget()
  mkdirSync(directory, { recursive: true })
  for (const file of target.files) copyFileSync(join(builtFolder(target), file), join(directory, file))
}

/** Loads it in a Node that takes itself for another system. */
function load(folder, { platform = 'linux', arch = 'x64', libc = 'glibc' } = {}) {
  const script = `
    Object.defineProperty(process, 'platform', { value: ${JSON.stringify(platform)} })
    Object.defineProperty(process, 'arch', { value: ${JSON.stringify(arch)} })
    process.report.getReport = () => ({ header: ${libc === 'glibc' ? "{ glibcVersionRuntime: '2.36' }" : '{}'} })
    try { require('spawn-owned') } catch ({ code, message, cause }) {
      console.log(JSON.stringify({ code, message, cause: cause?.message }))
    }`
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], { cwd: folder, encoding: 'utf8' })
  assert.equal(stderr, '')
  return stdout === '' ? undefined : JSON.parse(stdout)
}

describe('the error says what to install', () => {
  for (const { os, cpu, libc, ...target } of targets) {
    test(`on ${target.platform}`, (t) => {
      const { code, message, cause } = load(project(t), { platform: os, arch: cpu, libc })
      assert.equal(code, 'ERR_OWNED_NOT_INSTALLED')
      assert.ok(message.includes(`${os} ${cpu}${libc ? ` (${libc})` : ''} is not installed`), message)
      assert.ok(message.includes(`Install ${packageName(target)}:`), message)
      assert.match(message, /--omit=optional/)
      assert.equal(cause, undefined)
    })
  }

  test('and that there is nothing to install elsewhere', (t) => {
    const { message } = load(project(t), { platform: 'freebsd' })
    assert.match(message, /no native part for freebsd x64\. There is one for linux-x64-gnu, /)
    assert.match(
      load(project(t), { arch: 'ia32' }).message,
      /no native part for linux ia32 \(glibc\)\. There/,
    )
  })

  test('and that the package of another libc is there', (t) => {
    const { message } = load(project(t, [GNU]), { libc: 'musl' })
    assert.ok(message.includes(`Installed is ${GNU}: was node_modules copied`), message)
    assert.ok(message.includes(`Install ${MUSL}:`), message)
  })

  test('and that the right one is there but does not load, with the cause', (t) => {
    const { message, cause } = load(project(t, [GNU]))
    assert.ok(message.includes(`${GNU}, does not load`), message)
    assert.match(cause, /linux-x64-gnu/)
  })
})

describe('of several', () => {
  test('packages, the one for this libc is tried first', (t) => {
    const folder = project(t, [GNU, MUSL])
    assert.match(load(folder).cause, /linux-x64-gnu/)
    assert.match(load(folder, { libc: 'musl' }).cause, /linux-x64-musl/)
  })

  const here = { platform: process.platform, arch: process.arch, libc: thisTarget().libc }

  test('places, a local build comes before the package', (t) => {
    const folder = project(t, [packageName(thisTarget())])
    assert.match(load(folder, here).message, /does not load/)
    const native = join(folder, 'node_modules', 'spawn-owned', 'native')
    copyBuild(process.platform === 'win32' ? join(native, thisTarget().platform) : native)
    assert.equal(load(folder, here), undefined)
  })

  test('places, the package does where there is no local build', (t) => {
    const folder = project(t, [packageName(thisTarget())])
    copyBuild(join(folder, 'node_modules', packageName(thisTarget())))
    assert.equal(load(folder, here), undefined)
  })
})
