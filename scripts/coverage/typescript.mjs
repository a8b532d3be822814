// What the tests execute of ts/, in all processes that live to tell it: one that is killed does not.
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { tmpdir } from 'node:os'
import { join, normalize, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { bundle, bundles } from '../bundles.mjs'
import { installPeers } from '../peers.mjs'
import { root } from '../tools.mjs'

const folder = join(root, 'target', 'coverage')
const dist = join(root, 'dist')
const sources = `${pathToFileURL(join(root, 'ts'))}/`

/** By path, `{ lines, covered, missed }`. */
export function typescriptCoverage(wanted) {
  const told = join(folder, 'v8')
  rmSync(told, { recursive: true, force: true })
  mkdirSync(told, { recursive: true })
  // A bot may have become another user by the time it tells.
  chmodSync(told, 0o1777)
  runTests(wanted, told)
  const executed = new Map()
  for (const name of readdirSync(told)) note(JSON.parse(readFileSync(join(told, name), 'utf8')), executed)
  const lines = new Map()
  for (const [script, bytes] of executed) spread(script, bytes, lines)
  const ours = [...lines].filter(([path]) => path.startsWith('ts/'))
  return new Map(ours.map(([path, hits]) => [path, sum(hits)]))
}

function runTests(wanted, told) {
  installPeers()
  const all = readdirSync(join(root, '__test__')).filter((file) => file.endsWith('.test.mjs'))
  const files = wanted.length > 0 ? wanted : all.map((file) => join('__test__', file))
  const registry = mkdtempSync(join(tmpdir(), 'spawn-owned-coverage-'))
  const env = {
    ...process.env,
    NODE_V8_COVERAGE: told,
    SPAWN_OWNED_REGISTRY: join(registry, 'process-registry.json'),
  }
  const args = ['--test', '--test-reporter=dot', '--test-concurrency=2', ...files]
  const { status } = spawnSync(process.execPath, args, {
    cwd: root,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  rmSync(registry, { recursive: true, force: true })
  // A test that fails has executed something as well; that it fails is for `npm test` to say.
  if (status !== 0) console.error('some tests have failed')
}

/** Marks what one process has executed of each script of ours. */
function note({ result, 'source-map-cache': maps = {} }, executed) {
  for (const { url, functions } of result) {
    // The first is the script itself.
    const script = bundleAt(url, functions[0].ranges[0].endOffset) ?? sourcesAt(maps[url])
    if (!script) continue
    // Inner ranges come after the outer ones whose counts they correct.
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

/** One of our bundles, or a copy in a place where a test has installed it. Who has changed it there has made it longer or shorter. */
function bundleAt(url, length) {
  const [, name] = /\/dist\/([^/]+)\.js$/.exec(url) ?? []
  known ??= readBundles()
  const script = known.get(name)
  return script?.length === length ? script : undefined
}

/** Our bundles by name, with maps back to their sources: built again, in another place, and to the byte the same. */
function readBundles() {
  const place = join(folder, 'maps')
  return new Map(
    [...bundles.keys()].map((name) => {
      bundle(name, place, '--sourcemap=external')
      const code = readFileSync(join(place, `${name}.js`), 'utf8')
      if (code !== readFileSync(join(dist, `${name}.js`), 'utf8')) {
        throw new Error(`dist/${name}.js is not what ts/${name}.ts is built to: npm run build`)
      }
      const map = JSON.parse(readFileSync(join(place, `${name}.js.map`), 'utf8'))
      const lines = code.split('\n').map((line) => line.length)
      return [name, scriptOf(lines, map, (source) => normalize(join(place, source)))]
    }),
  )
}

/** What a test has made of single files of ts/ (`__test__/support/sources.mjs`), by the map that it has in itself. */
function sourcesAt(found) {
  if (!found?.data?.sources.some((source) => source.startsWith(sources))) return undefined
  return scriptOf(found.lineLengths, found.data, (source) => fileURLToPath(source))
}

/** `lines`: how long they are. */
function scriptOf(lines, map, pathOf) {
  const length = lines.reduce((sum, line) => sum + line + 1, -1)
  return { lines, length, map: new SourceMap(map), pathOf }
}

/** Brings marks on a script back to lines of its sources: a line is executed if anything of it is. */
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
