// The other installers, and the tools that check a package: fetched below target/ and kept between
// runs. They are not development dependencies, because they bring their own TypeScript and only
// this test needs them.
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
/** The program itself. The package's own copy is created by an install script, and none is run. */
export const bun = join(packages, '@oven', `bun-${process.platform}-${bunArch()}`, 'bin', 'bun')
export const publint = join(packages, 'publint', 'src', 'index-node.js')
export const attw = join(packages, '@arethetypeswrong', 'cli', 'dist', 'index.js')

export const fetchInstallers = () => fetchTools(folder, versions)

function bunArch() {
  return process.arch === 'arm64' ? 'aarch64' : process.arch
}
