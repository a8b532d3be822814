// `npm run test:install`: the packages as they would be published, installed by npm, pnpm, Yarn and Bun into an empty TypeScript project, which
// is compiled and run. In a path with spaces, without install scripts, and as a user who is not root.
import assert from 'node:assert/strict'
import { chmodSync, chownSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, sep } from 'node:path'
import { openWitness, READY } from '../../__test__/support/witness.mjs'
import { builtFolder, pack, stagePackage } from '../packages.mjs'
import { checkSize, megabytes } from '../targets/check.mjs'
import { targets, thisTarget } from '../targets/list.mjs'
import { root, say } from '../tools.mjs'
import { judge } from './judges.mjs'
import { bots, bundle, compile, copyBots, createProject, inProject } from './project.mjs'
import { startRegistry } from './registry.mjs'
import { bun, fetchInstallers, pnpm, yarn } from './tools.mjs'

const NOBODY = 65534
const here = thisTarget()
const manifest = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))

fetchInstallers()
const work = mkdtempSync(join(tmpdir(), 'spawn-owned install '))
chmodSync(work, 0o755)
process.on('exit', () => rmSync(work, { recursive: true, force: true, maxRetries: 10 }))

say('Packing')
const main = pack(root, join(work, 'packed'))
// Yarn asks for every platform, to choose one. Those that were not built are there by their manifest only; none of them may be chosen.
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

await judge(main.tarball)
const first = await viaNpm()
await bundled(first)
await viaPnpm()
await viaYarn(first)
await viaBun()
await notRoot(first)
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

/** A program that knows nothing of us. */
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

/** TypeScript's compiler knows nothing of Plug'n'Play: it runs what was compiled before. */
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

/** Files that root has installed are not tried: that is what an image built by root and run by somebody else has, and the modes tell. */
async function notRoot(compiled) {
  if (process.getuid() !== 0) return passed('not root', 'everything above was')
  const project = create('nobody')
  copyBots(compiled, project)
  for (const path of [project, join(project, 'home')]) chownSync(path, NOBODY, NOBODY)
  await inProject(project, 'npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund'], { uid: NOBODY })
  const own = await runBots(project, { uid: NOBODY })
  assert.equal(own.uid, NOBODY)
  // What root has installed, as in an image: it is enough to read and to execute.
  const roots = await runBots(compiled, { uid: NOBODY, registry: join(project, 'home', 'registry.json') })
  assert.equal(roots.uid, NOBODY)
  passed('not root', 'what that user has installed, and what root has')
}

function create(name) {
  say(`Installing with ${name}`)
  const project = join(work, `with ${name}`)
  const versions = [join(root), ...types.slice(0, 1)]
    .map(manifest)
    .map(({ name, version }) => [name, version])
  createProject(project, registry.url, Object.fromEntries(versions))
  return project
}

/** Runs both kinds; an independent witness tells that their trees existed, and that nothing is left of them. */
async function runBots(project, { files = bots, node = [process.execPath], uid, registry } = {}) {
  let result
  for (const file of files) {
    const closing = []
    const witness = openWitness({ after: (close) => closing.push(close) })
    try {
      chmodSync(witness.dir, 0o755)
      chmodSync(witness.path, 0o666)
      const env = { WITNESS: witness.path, ...(registry && { SPAWN_OWNED_REGISTRY: registry }) }
      const [command, ...args] = [...node, file]
      result = JSON.parse(await inProject(project, command, args, { uid, env }))
      witness.release()
      assert.ok(witness.isGone(), `processes are left:\n${witness.holders()}`)
      assert.equal(witness.count(READY), 2)
    } finally {
      for (const close of closing) close()
    }
    judgeBot(project, result)
  }
  return result
}

function judgeBot(project, { addon, uid, ...told }) {
  assert.deepEqual(told, {
    ...{
      known: [true],
      reason: 'manual-cancel',
      survivors: [],
      exitCode: 7,
      heard: 'heard\n',
      onTerminal: 5,
    },
    ofAgent: 3,
    withoutSdk: 'ERR_OWNED_PEER_MISSING',
  })
  assert.ok(addon.startsWith(project + sep), `${addon} is not the project's`)
  const keeper = join(dirname(addon), here.files[1])
  assert.equal(statSync(keeper).mode & 0o111, 0o111, `${keeper} is not executable`)
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
