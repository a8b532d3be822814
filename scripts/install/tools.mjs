// The other installers, and those who judge a package: fetched below target/ and kept between runs. Not development dependencies: they
// bring a TypeScript of their own, and nobody needs them for anything else.
import { join } from 'node:path'
import { fetchTools } from '../fetch.mjs'
import { root } from '../tools.mjs'

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

export const fetchInstallers = () => fetchTools(folder, versions)

function bunArch() {
  return process.arch === 'arm64' ? 'aarch64' : process.arch
}
