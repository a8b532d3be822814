// `npm run test:install`: installs the packages as published with npm, pnpm, Yarn and Bun into an
// empty TypeScript project, which is compiled and run. In a path with spaces, without install
// scripts, and as a user who is not root. Then the same in other compilers, bundlers, test runners and
// watchers (toolchains/): by default the short ones, with `--all` all of them, with `--only vite,jest`
// only these.
import assert from 'node:assert/strict'
import { chmodSync, chownSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { builtFolder, pack, stageMain, stagePackage } from '../packages.mjs'
import { checkSize, megabytes } from '../targets/check.mjs'
import { targets, thisTarget } from '../targets/list.mjs'
import { root, say } from '../tools.mjs'
import { runBots } from './bots.mjs'
import { judge } from './judges.mjs'
import { bundle, compile, copyBots, createProject, inProject } from './project.mjs'
import { startRegistry } from './registry.mjs'
import { runToolchains } from './toolchains/run.mjs'
import { bun, fetchInstallers, pnpm, yarn } from './tools.mjs'

const UNPRIVILEGED = 65534
const here = thisTarget()
const manifest = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))

const { values: options } = parseArgs({
  options: { all: { type: 'boolean', default: false }, only: { type: 'string' } },
})
if (options.only === undefined) fetchInstallers()
const work = mkdtempSync(join(tmpdir(), 'spawn-owned install '))
chmodSync(work, 0o755)
process.on('exit', () => rmSync(work, { recursive: true, force: true, maxRetries: 10 }))

say('Packing')
const main = pack(stageMain(join(work, 'folders')), join(work, 'packed'))
// Yarn requests every platform before it chooses one. Platforms that were not built have only a
// manifest here, and must not be chosen.
const platforms = targets.map((target) => {
  const built = builtFolder(target)
  const folder = built
    ? stagePackage(target, built, join(work, 'folders'))
    : join(root, 'npm', target.platform)
  return pack(folder, join(work, 'packed'))
})
const types = ['@types/node', 'undici-types'].map((name) => join(root, 'node_modules', name))
const registry = await startRegistry([
  main.tarball,
  ...platforms.map(({ tarball }) => tarball),
  ...types.map((folder) => pack(folder, join(work, 'packed')).tarball),
])
process.on('exit', registry.close)

if (options.only === undefined) {
  await judge(main.tarball)
  const first = await viaNpm()
  await bundled(first)
  await viaPnpm()
  await viaYarn(first)
  await viaBun()
  await notRoot(first)
}
await runToolchains({ registry: registry.url, versions: versions(), ...options })
registry.close()

async function viaNpm() {
  const project = create('npm')
  await inProject(project, 'npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund'])
  const scope = join(project, 'node_modules', '@spawn-owned')
  assert.deepEqual(readdirSync(scope), [here.platform], 'npm installs this platform, and no other')
  await compile(project)
  const { addon } = await runBots(project)
  await runHooked(project)
  const size = sizeOf(join(project, 'node_modules', 'spawn-owned')) + sizeOf(dirname(addon))
  if (builtFolder(here).endsWith(here.platform)) assert.deepEqual(checkSize(size), [])
  passed('npm', `compiled and run as ESM and CommonJS, ${megabytes(size)} MB installed`)
  return project
}

/** A program that does not know spawn-owned. */
async function runHooked(project) {
  const asks = "'runId' in require('child_process').spawn('true')"
  for (const flag of ['--import', '--require']) {
    const answer = await inProject(project, process.execPath, [flag, 'spawn-owned/register', '-p', asks])
    assert.equal(answer, 'true\n', `${flag} spawn-owned/register`)
  }
}

async function bundled(project) {
  await bundle(project)
  await runBots(project, { files: [join('bundled', 'bot.mjs'), join('bundled', 'bot.cjs')] })
  passed('esbuild', 'bundles of both kinds, with the package external')
}

async function viaPnpm() {
  const project = create('pnpm')
  await inProject(project, process.execPath, [pnpm, 'install', '--ignore-scripts'])
  const store = readdirSync(join(project, 'node_modules', '.pnpm')).filter((name) =>
    name.startsWith('@spawn-owned'),
  )
  assert.deepEqual(
    store.map((name) => name.split('@')[1]),
    [`spawn-owned+${here.platform}`],
  )
  await compile(project)
  await runBots(project)
  passed('pnpm', 'compiled and run as ESM and CommonJS')
}

/**
 * The TypeScript compiler does not support Plug'n'Play, so this runs files that were compiled
 * before.
 */
async function viaYarn(compiled) {
  const project = create('yarn')
  copyBots(compiled, project)
  await inProject(project, process.execPath, [yarn, 'install'])
  const unplugged = readdirSync(join(project, '.yarn', 'unplugged'))
  assert.equal(unplugged.length, 1, unplugged.join())
  await runBots(project, { node: [process.execPath, yarn, 'node'] })
  passed('Yarn', "run with Plug'n'Play as ESM and CommonJS")
}

async function viaBun() {
  const project = create('bun')
  await inProject(project, bun, ['install', '--ignore-scripts'])
  await compile(project)
  await runBots(project)
  const installed = readdirSync(join(project, 'node_modules', '@spawn-owned'))
  passed('Bun', `compiled and run (by Node) as ESM and CommonJS; it has installed ${installed.join(' and ')}`)
}

/** A user who is not root. It also runs what root has installed, as in an image. */
async function notRoot(compiled) {
  if (process.getuid() !== 0) return passed('not root', 'all tests above ran without root')
  const project = create('unprivileged')
  copyBots(compiled, project)
  for (const path of [project, join(project, 'home')]) chownSync(path, UNPRIVILEGED, UNPRIVILEGED)
  await inProject(project, 'npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund'], {
    uid: UNPRIVILEGED,
  })
  const own = await runBots(project, { uid: UNPRIVILEGED })
  assert.equal(own.uid, UNPRIVILEGED)
  // Installed by root, as in an image: read and execute permission suffice.
  const roots = await runBots(compiled, {
    uid: UNPRIVILEGED,
    registry: join(project, 'home', 'registry.json'),
  })
  assert.equal(roots.uid, UNPRIVILEGED)
  passed('not root', 'what that user has installed, and what root has installed')
}

function create(name) {
  say(`Installing with ${name}`)
  const project = join(work, `with ${name}`)
  createProject(project, registry.url, versions())
  return project
}

/** The dependencies of a project, by name. */
function versions() {
  const manifests = [root, ...types.slice(0, 1)].map(manifest)
  return Object.fromEntries(manifests.map(({ name, version }) => [name, version]))
}

function sizeOf(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  )
  return files.reduce((total, { parentPath, name }) => total + statSync(join(parentPath, name)).size, 0)
}

function passed(what, how) {
  console.log(`install: ${what}: ${how}`)
}
