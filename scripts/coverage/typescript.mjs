// What the tests execute of ts/, in all processes that exit by themselves. A killed process writes
// no coverage.
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { tmpdir } from 'node:os'
import { join, normalize, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { bundle, bundles } from '../bundles.mjs'
import { installPeers } from '../peers.mjs'
import { testFiles } from '../test-files.mjs'
import { root } from '../tools.mjs'

const folder = join(root, 'target', 'coverage')
const dist = join(root, 'dist')
const sources = `${pathToFileURL(join(root, 'ts'))}/`

/** By path, `{ lines, covered, missed }`. */
export async function typescriptCoverage(wanted) {
  const outputs = join(folder, 'v8')
  rmSync(outputs, { recursive: true, force: true })
  mkdirSync(outputs, { recursive: true })
  // A bot may run as another user when it writes its coverage.
  chmodSync(outputs, 0o1777)
  runTests(wanted, outputs)
  known = await readBundles()
  const executed = new Map()
  for (const name of readdirSync(outputs))
    note(JSON.parse(readFileSync(join(outputs, name), 'utf8')), executed)
  const lines = new Map()
  for (const [script, bytes] of executed) spread(script, bytes, lines)
  const ours = [...lines].filter(([path]) => path.startsWith('ts/'))
  return new Map(ours.map(([path, hits]) => [path, sum(hits)]))
}

function runTests(wanted, outputs) {
  installPeers()
  const files = wanted.length > 0 ? wanted : [...testFiles.values()]
  const registry = mkdtempSync(join(tmpdir(), 'spawn-owned-coverage-'))
  const env = {
    ...process.env,
    NODE_V8_COVERAGE: outputs,
    SPAWN_OWNED_REGISTRY: join(registry, 'process-registry.json'),
  }
  const args = ['--test', '--test-reporter=dot', '--test-concurrency=2', ...files]
  const { status } = spawnSync(process.execPath, args, {
    cwd: root,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  rmSync(registry, { recursive: true, force: true })
  // A failed test has executed code as well. `npm test` reports the failure itself.
  if (status !== 0) console.error('some tests failed; run npm test to see which')
}

/** Marks what one process has executed of each of our scripts. */
function note({ result, 'source-map-cache': maps = {} }, executed) {
  for (const { url, functions } of result) {
    // The first function is the script itself.
    const script = bundleAt(url, functions[0].ranges[0].endOffset) ?? sourcesAt(maps[url])
    if (!script) continue
    // Inner ranges come after the outer ones, and correct their counts.
    const ranges = functions.flatMap((one) => one.ranges)
    ranges.sort((a, b) => a.startOffset - b.startOffset || b.endOffset - a.endOffset)
    const now = new Uint8Array(script.length)
    for (const { startOffset, endOffset, count } of ranges)
      now.fill(count > 0 ? 1 : 0, startOffset, endOffset)
    const before = executed.get(script) ?? new Uint8Array(script.length)
    executed.set(
      script,
      before.map((byte, index) => byte | now[index]),
    )
  }
}

let known

/**
 * One of our bundles, or a copy that a test installed in another place. A modified copy has another
 * length.
 */
function bundleAt(url, length) {
  const [, name] = /\/dist\/([^/]+)\.js$/.exec(url) ?? []
  const script = known.get(name)
  return script?.length === length ? script : undefined
}

/**
 * Our bundles by name, with source maps: built again in another folder, and identical to the byte.
 */
async function readBundles() {
  const place = join(folder, 'maps')
  const scripts = new Map()
  for (const name of bundles.keys()) {
    await bundle(name, place, { sourcemap: 'external' })
    const code = readFileSync(join(place, `${name}.js`), 'utf8')
    if (code !== readFileSync(join(dist, `${name}.js`), 'utf8')) {
      throw new Error(`dist/${name}.js does not match ts/${name}.ts. Run npm run build.`)
    }
    const map = JSON.parse(readFileSync(join(place, `${name}.js.map`), 'utf8'))
    const lines = code.split('\n').map((line) => line.length)
    scripts.set(
      name,
      scriptOf(lines, map, (source) => normalize(join(place, source))),
    )
  }
  return scripts
}

/**
 * Single files of ts/ that a test compiled (`__test__/support/sources.mjs`), with their inline
 * source map.
 */
function sourcesAt(found) {
  if (!found?.data?.sources.some((source) => source.startsWith(sources))) return undefined
  return scriptOf(found.lineLengths, found.data, (source) => fileURLToPath(source))
}

/** `lines`: the lengths of the lines. */
function scriptOf(lines, map, pathOf) {
  const length = lines.reduce((sum, line) => sum + line + 1, -1)
  return { lines, length, map: new SourceMap(map), pathOf }
}

/** Maps marks on a script to the lines of its sources. A line is executed if any part of it is. */
function spread({ lines: lengths, map, pathOf }, bytes, lines) {
  let offset = 0
  for (const [line, length] of lengths.entries()) {
    for (let column = 0; column <= length; column += 1, offset += 1) {
      const { originalSource, originalLine } = map.findEntry(line, column)
      if (!originalSource) continue
      const path = relative(root, pathOf(originalSource))
      if (!lines.has(path)) lines.set(path, new Map())
      const hits = lines.get(path)
      hits.set(originalLine + 1, Boolean(hits.get(originalLine + 1)) || bytes[offset] === 1)
    }
  }
}

function sum(hits) {
  const missed = [...hits].filter(([, isHit]) => !isHit).map(([line]) => line)
  return { lines: hits.size, covered: hits.size - missed.length, missed: missed.sort((a, b) => a - b) }
}
