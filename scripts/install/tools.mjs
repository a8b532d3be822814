// The other installers, and those who judge a package: fetched below target/ and kept between runs. Not development dependencies: they
// bring a TypeScript of their own, and nobody needs them for anything else.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root, run, say } from '../tools.mjs'

const folder = join(root, 'target', 'install', 'tools')

const versions = {
  pnpm: '12.18.0',
  '@yarnpkg/cli-dist': '4.18.1',
  bun: '1.4.4',
  publint: '0.3.25',
  '@arethetypeswrong/cli': '0.18.5',
}

const packages = join(folder, 'node_modules')

export const pnpm = join(packages, 'pnpm', 'bin', 'pnpm.mjs')
export const yarn = join(packages, '@yarnpkg', 'cli-dist', 'bin', 'yarn.js')
/** The program itself: what is in the package's own folder is put there by a script, and none is run. */
export const bun = join(packages, '@oven', `bun-${process.platform}-${bunArch()}`, 'bin', 'bun')
export const publint = join(packages, 'publint', 'src', 'index-node.js')
export const attw = join(packages, '@arethetypeswrong', 'cli', 'dist', 'index.js')

export function fetchTools() {
  const wanted = JSON.stringify({ private: true, dependencies: versions })
  const done = join(folder, 'fetched.json')
  if (existsSync(done) && readFileSync(done, 'utf8') === wanted) return
  say('Fetching pnpm, Yarn, Bun, publint and attw')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), wanted)
  const quietly = ['--no-audit', '--no-fund', '--no-package-lock', '--ignore-scripts']
  run('npm', ['install', '--prefix', folder, ...quietly], { quiet: true })
  writeFileSync(done, wanted)
}

function bunArch() {
  return process.arch === 'arm64' ? 'aarch64' : process.arch
}
