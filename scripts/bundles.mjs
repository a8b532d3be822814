// The entry points of the package, and how esbuild makes them: one file each, because loading a dozen would take half as long again. They
// share one implementation, that of index.
import { bin, run } from './tools.mjs'

const common = [
  '--bundle',
  '--platform=node',
  '--format=cjs',
  '--target=node20',
  // Names as well: to keep them all makes an import take a millisecond longer. Classes whose names people see, in `util.inspect` and in
  // stack traces, have a `static name`.
  '--minify',
]
const shared = ['--external:./index.js', '--external:./child_process.js']

/** By name, with what is particular about each. */
export const bundles = new Map([
  ['index', []],
  ...['child_process', 'hook', 'node-pty', 'claude-agent-sdk', 'mcp'].map((name) => [name, shared]),
  ['cli', [...shared, '--banner:js=#!/usr/bin/env node']],
])

export function bundle(name, folder, ...more) {
  const place = [`--outdir=${folder}`, '--log-level=warning']
  run(process.execPath, [bin('esbuild'), `ts/${name}.ts`, ...common, ...bundles.get(name), ...place, ...more])
}
