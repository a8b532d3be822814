// Where the native addon is searched, and the errors when it is missing.
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { builtFolder } from '../../scripts/packages.mjs'
import { packageName, targets, thisTarget } from '../../scripts/targets/list.mjs'
import { assert, describe, test } from '../support/prelude.mjs'
import { NO_KEEPER, posixOnly } from '../support/system.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const GNU = '@spawn-owned/linux-x64-gnu'
const MUSL = '@spawn-owned/linux-x64-musl'

/** A project with spawn-owned as from npm. The addons of the `broken` packages do not load. */
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

/** Copies the files that were built for this machine into a directory of the project. */
function copyBuild(directory) {
  const target = thisTarget()
  mkdirSync(directory, { recursive: true })
  for (const file of target.files) copyFileSync(join(builtFolder(target), file), join(directory, file))
}

/** Loads spawn-owned in a Node process that reports another platform. */
function load(folder, { platform = 'linux', arch = 'x64', libc = 'glibc' } = {}, before = '') {
  const script = `
    ${before}
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

describe('the error of a missing addon names', () => {
  for (const { os, cpu, libc, ...target } of targets) {
    test(`the package to install on ${target.platform}`, (t) => {
      const { code, message, cause } = load(project(t), { platform: os, arch: cpu, libc })
      assert.equal(code, 'ERR_OWNED_NOT_INSTALLED')
      assert.ok(message.includes(`${os} ${cpu}${libc ? ` (${libc})` : ''} is not installed`), message)
      assert.ok(message.includes(`Install ${packageName(target)}:`), message)
      assert.match(message, /--omit=optional/)
      assert.equal(cause, undefined)
    })
  }

  test('the supported platforms on a platform without a package', (t) => {
    const { message } = load(project(t), { platform: 'freebsd' })
    assert.match(message, /no native addon for freebsd x64\. It supports linux-x64-gnu, /)
    assert.match(load(project(t), { arch: 'ia32' }).message, /no native addon for linux ia32 \(glibc\)\. It/)
  })

  test('the installed package of another libc', (t) => {
    const { message } = load(project(t, [GNU]), { libc: 'musl' })
    assert.ok(message.includes(`Installed is ${GNU}: was node_modules copied`), message)
    assert.ok(message.includes(`Install ${MUSL}:`), message)
  })

  test('the cause if the right package is installed but does not load', (t) => {
    const { message, cause } = load(project(t, [GNU]))
    assert.ok(message.includes(`${GNU}, does not load`), message)
    assert.match(cause, /linux-x64-gnu/)
  })
})

describe('a native addon of another version', () => {
  const here = { platform: process.platform, arch: process.arch, libc: thisTarget().libc }
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

  /** Loads spawn-owned with an addon that has these exports. */
  function loadBeside(t, exported) {
    const name = packageName(thisTarget())
    const folder = project(t)
    place(folder, name, (file) => writeFileSync(file, ''))
    const fake = `require('node:module')._extensions['.node'] = (module) => { module.exports = ${JSON.stringify(exported)} }`
    return {
      folder,
      addon: join(folder, 'node_modules', name, 'spawn-owned.node'),
      ...load(folder, here, fake),
    }
  }

  const others = {
    'another version': [{ VERSION: '0.0.9', INTERFACE: 1 }, '0.0.9 (interface 1)'],
    'the same version with another interface': [
      { VERSION: version, INTERFACE: 0 },
      `${version} (interface 0)`,
    ],
    'an addon without a version': [{ Host: null }, 'unknown (interface 0)'],
  }
  for (const [name, [exported, text]] of Object.entries(others)) {
    test(`is refused at load: ${name}`, (t) => {
      const { code, message, addon, folder } = loadBeside(t, exported)
      assert.equal(code, 'ERR_OWNED_VERSION_MISMATCH')
      assert.ok(message.includes(addon), message)
      assert.ok(message.includes(join(folder, 'node_modules', 'spawn-owned')), message)
      assert.ok(message.includes(`version ${text}`), message)
      assert.match(message, new RegExp(`is version ${version.replaceAll('.', '\\.')} \\(interface \\d+\\)`))
      assert.match(message, /reinstall spawn-owned/)
    })
  }

  test('is skipped if the next location has the right one', (t) => {
    const folder = project(t, [packageName(thisTarget())])
    copyBuild(join(folder, 'node_modules', packageName(thisTarget())))
    const native = join(folder, 'node_modules', 'spawn-owned', 'native')
    const local = process.platform === 'linux' ? native : join(native, `${here.platform}-${here.arch}`)
    mkdirSync(local, { recursive: true })
    writeFileSync(join(local, 'spawn-owned.node'), '')
    const fake = `
      const { _extensions } = require('node:module')
      const load = _extensions['.node']
      _extensions['.node'] = (module, file) =>
        file.startsWith(${JSON.stringify(native)}) ? (module.exports = { VERSION: '0.0.9' }) : load(module, file)`
    assert.equal(load(folder, here, fake), undefined)
  })

  test(
    'is refused before a process is started if it is the keeper that differs',
    posixOnly(NO_KEEPER),
    (t) => {
      const folder = project(t)
      const native = join(folder, 'node_modules', packageName(thisTarget()))
      copyBuild(native)
      writeFileSync(
        join(native, 'package.json'),
        JSON.stringify({ name: packageName(thisTarget()), version }),
      )
      const keeper = join(native, 'spawn-owned-keeper')
      const bytes = readFileSync(keeper)
      const hello = Buffer.from([0x53, 0x4f, 0, 0x5a])
      // The keeper's first message: magic bytes, protocol version, package version.
      let at = -1
      for (let i = 0; i < bytes.length - 9 && at < 0; i++)
        if (bytes[i] === hello[0] && bytes[i + 1] === hello[1] && bytes[i + 3] === hello[3])
          if (bytes.subarray(i + 4, i + 4 + version.length).toString() === version) at = i
      assert.ok(at > 0, 'the message is in the executable')
      bytes.write('9.9.9'.padEnd(version.length, '9').slice(0, version.length), at + 4)
      rmSync(keeper)
      writeFileSync(keeper, bytes, { mode: 0o755 })
      const script = `
      try { require('spawn-owned').spawnOwned('true') } catch ({ code, message }) {
        console.log(JSON.stringify({ code, message }))
      }`
      const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], {
        cwd: folder,
        encoding: 'utf8',
        env: { ...process.env, SPAWN_OWNED_REGISTRY: join(folder, 'registry.json') },
      })
      assert.notEqual(stdout, '', stderr)
      const { code, message } = JSON.parse(stdout)
      assert.equal(code, 'ERR_OWNED_VERSION_MISMATCH')
      assert.ok(message.includes(keeper), message)
      assert.match(message, /is version 9\.9\.9 \(protocol \d+\), and the native addon beside it is version /)
    },
  )
})

describe('the loader', () => {
  test('tries the package for this libc first', (t) => {
    const folder = project(t, [GNU, MUSL])
    assert.match(load(folder).cause, /linux-x64-gnu/)
    assert.match(load(folder, { libc: 'musl' }).cause, /linux-x64-musl/)
  })

  const here = { platform: process.platform, arch: process.arch, libc: thisTarget().libc }

  test('prefers a local build to the package', (t) => {
    const folder = project(t, [packageName(thisTarget())])
    assert.match(load(folder, here).message, /does not load/)
    const native = join(folder, 'node_modules', 'spawn-owned', 'native')
    copyBuild(process.platform === 'win32' ? join(native, thisTarget().platform) : native)
    assert.equal(load(folder, here), undefined)
  })

  test('uses the package if there is no local build', (t) => {
    const folder = project(t, [packageName(thisTarget())])
    copyBuild(join(folder, 'node_modules', packageName(thisTarget())))
    assert.equal(load(folder, here), undefined)
  })
})
