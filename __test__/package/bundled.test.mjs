// The package inside a bundle and inside an Electron archive: it works, or the error says what to set.
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtFolder } from '../../scripts/packages.mjs'
import { packageName, thisTarget } from '../../scripts/targets/list.mjs'
import { root } from '../../scripts/tools.mjs'
import { assert } from '../support/prelude.mjs'
import { describe, sources, test } from '../support/sources.mjs'
import { isNode } from '../support/system.mjs'

const { movedHint, outsideAsar } = await sources('native/platform-packages')
const target = thisTarget()
const OPTIONS = [
  '--external:spawn-owned',
  "external: ['spawn-owned']",
  "ssr: { external: ['spawn-owned'] }",
  "externals: { 'spawn-owned': 'commonjs spawn-owned' }",
  "serverExternalPackages: ['spawn-owned']",
]
const RUN = `
const child = spawnOwned(process.execPath, ['-e', ''])
child.wait().then(({ reason }) => console.log(reason))
`

function temporary(t) {
  const folder = mkdtempSync(join(tmpdir(), 'bundled-'))
  t.after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))
  return folder
}

/** Installs the package into `folder`, with the native files in `natively`. */
function install(folder, natively = folder) {
  const main = join(folder, 'node_modules', 'spawn-owned')
  cpSync(join(root, 'dist'), join(main, 'dist'), { recursive: true })
  copyFileSync(join(root, 'package.json'), join(main, 'package.json'))
  const place = (base) => join(base, 'node_modules', packageName(target))
  for (const base of [folder, natively]) mkdirSync(place(base), { recursive: true })
  writeFileSync(join(place(folder), 'package.json'), JSON.stringify({ name: packageName(target) }))
  for (const file of target.files) copyFileSync(join(builtFolder(target), file), join(place(natively), file))
}

/** Bundles everything, the package too. The result is in another folder. */
async function bundled(t, format, source) {
  const { build } = await import('esbuild')
  const [from, to] = [temporary(t), temporary(t)]
  mkdirSync(join(from, 'node_modules'))
  symlinkSync(root, join(from, 'node_modules', 'spawn-owned'), 'junction')
  writeFileSync(join(from, 'bot.mjs'), source)
  // The name of the file that a wrong relative path would find.
  const outfile = join(to, format === 'esm' ? 'index.mjs' : 'index.js')
  await build({
    ...{ absWorkingDir: from, entryPoints: ['bot.mjs'], outfile, format, logLevel: 'silent' },
    ...{ bundle: true, platform: 'node' },
  })
  return { folder: to, file: outfile }
}

function run(file, cwd) {
  const env = { ...process.env, SPAWN_OWNED_REGISTRY: join(cwd, 'registry.json') }
  return spawnSync(process.execPath, [file], { cwd, env, encoding: 'utf8' })
}

describe('a bundle that contains the package', { skip: !isNode && 'bundles are made for Node' }, () => {
  const forms = {
    'import in an ES module': ['esm', `import { spawnOwned } from 'spawn-owned'${RUN}`],
    'import in CommonJS': ['cjs', `import { spawnOwned } from 'spawn-owned'${RUN}`],
    'require in CommonJS': ['cjs', `const { spawnOwned } = require('spawn-owned')${RUN}`],
  }
  for (const [name, [format, source]] of Object.entries(forms)) {
    test(`works if the package is installed beside it: ${name}`, async (t) => {
      const { folder, file } = await bundled(t, format, source)
      install(folder)
      const { stdout, stderr } = run(file, folder)
      assert.equal(stdout, 'exit\n', stderr)
    })

    test(`fails with the options of bundlers if it is not: ${name}`, async (t) => {
      const { folder, file } = await bundled(t, format, source)
      const { stdout, stderr } = run(file, folder)
      assert.equal(stdout, '')
      assert.match(stderr, /ERR_OWNED_NOT_INSTALLED/)
      for (const option of OPTIONS) assert.ok(stderr.includes(option), `${option} is missing in:\n${stderr}`)
    })
  }
})

describe('in an asar archive of Electron', () => {
  const cases = [
    ['/opt/app/resources/app.asar/node_modules/x', '/opt/app/resources/app.asar.unpacked/node_modules/x'],
    ['C:\\app\\app.asar\\node_modules\\x', 'C:\\app\\app.asar.unpacked\\node_modules\\x'],
    ['/opt/app.asar.unpacked/node_modules/x', '/opt/app.asar.unpacked/node_modules/x'],
    ['/home/me/my.asar-tools/x', '/home/me/my.asar-tools/x'],
    ['/srv/bot/node_modules/x', '/srv/bot/node_modules/x'],
  ]
  for (const [inside, outside] of cases)
    test(`native files of ${inside} are in ${outside}`, () => assert.equal(outsideAsar(inside), outside))

  test('addon and keeper are used from the unpacked folder', (t) => {
    const folder = temporary(t)
    // Electron lets programs read an archive like this folder.
    const [archive, unpacked] = [join(folder, 'app.asar'), join(folder, 'app.asar.unpacked')]
    install(archive, unpacked)
    writeFileSync(join(archive, 'bot.js'), `const { spawnOwned } = require('spawn-owned')${RUN}`)
    const { stdout, stderr } = run(join(archive, 'bot.js'), folder)
    assert.equal(stdout, 'exit\n', stderr)
  })

  test('the error for files that are not unpacked names the options of the packagers', (t) => {
    const folder = temporary(t)
    const archive = join(folder, 'app.asar')
    install(archive)
    writeFileSync(join(archive, 'bot.js'), "require('spawn-owned')")
    const { stderr } = run(join(archive, 'bot.js'), folder)
    for (const word of ['ERR_OWNED_NOT_INSTALLED', 'asarUnpack:', 'unpackDir:'])
      assert.ok(stderr.includes(word), stderr)
  })
})

test('there is no advice about bundlers for a package that no bundler has moved', () =>
  assert.equal(movedHint('/srv/bot/node_modules/spawn-owned/dist/index.js', false), ''))
