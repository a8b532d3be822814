// The documents agree with the code and with each other: links, imports of examples, error codes,
// events and metrics.

import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createSupervisor } from 'spawn-owned'

const root = fileURLToPath(new URL('../..', import.meta.url))
const read = (path) => readFileSync(path, 'utf8')

const api = join(root, 'docs', 'api')
/** The pages that are not generated. */
const pages = [join(root, 'README.md'), ...find('docs', '.md'), ...find('examples', '.md')].filter(
  (page) => !page.startsWith(api),
)
const sources = [...find('ts', '.ts'), ...find('src', '.rs')]

/** Does not follow links: an example has a link to its packages, which lead to the whole tree. */
function find(folder, suffix) {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory()) return find(join(folder, entry.name), suffix)
    return entry.isFile() && entry.name.endsWith(suffix) ? [join(root, folder, entry.name)] : []
  })
}

test('every link leads to an existing file and heading', () => {
  const broken = pages.flatMap((page) =>
    links(read(page))
      .filter((link) => !targetExists(page, link))
      .map((link) => `${relative(root, page)}: ${link}`),
  )
  assert.deepEqual(broken, [])
})

function links(text) {
  return [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
}

function targetExists(page, link) {
  const [path, anchor] = link.split('#')
  const target = path === '' ? page : join(dirname(page), path)
  if (!existsSync(target)) return false
  return anchor === undefined || headings(read(target)).has(anchor)
}

/** The anchors of all headings, as GitHub makes them: the second equal heading gets `-1`. */
function headings(text) {
  const seen = new Map()
  const anchors = [...withoutCode(text).matchAll(/^#+ (.+)$/gm)].map(([, title]) => {
    const slug = title
      .toLowerCase()
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replace(/\s/g, '-')
    const times = seen.get(slug) ?? 0
    seen.set(slug, times + 1)
    return times === 0 ? slug : `${slug}-${times}`
  })
  return new Set(anchors)
}

function withoutCode(text) {
  return text.replace(/^```.*?^```/gms, '')
}

test('examples import only names that exist', async () => {
  for (const page of pages) {
    for (const [, names, module] of read(page).matchAll(
      /import (?:type )?\{([^}]+)\} from '(spawn-owned[^']*)'/g,
    )) {
      const declared = new Set([...Object.keys(await load(module)), ...types(module)])
      for (const name of names.split(','))
        assert.ok(
          declared.has(
            name
              .trim()
              .replace(/^type /, '')
              .split(' ')[0],
          ),
          `${relative(root, page)}: ${module} has no ${name}`,
        )
    }
  }
})

/** Loads a module, except those that need a missing package or change this process. */
async function load(module) {
  return ['spawn-owned/mcp', 'spawn-owned/register'].includes(module) ? {} : await import(module)
}

function types(module) {
  const file = module === 'spawn-owned' ? 'index' : `types/${module.slice('spawn-owned/'.length)}`
  const text = read(join(root, `${file}.d.ts`))
  return [
    ...text.matchAll(/^export (?:declare )?(?:abstract )?(?:interface|type|class|function|const) (\w+)/gm),
  ].map(([, name]) => name)
}

test('docs/troubleshooting.md has every error code, and no other', () => {
  const codes = (files) => [...new Set(files.flatMap((file) => read(file).match(/ERR_OWNED_[A-Z_]+/g) ?? []))]
  assert.deepEqual(codes([join(root, 'docs', 'troubleshooting.md')]).sort(), codes(sources).sort())
})

test('docs/events.md has a row for every event and metric', () => {
  const text = read(join(root, 'docs', 'events.md'))
  const events = [...read(join(root, 'index.d.ts')).matchAll(/^ {2}type: '([a-z-]+)'$/gm)].map(
    ([, type]) => type,
  )
  assert.ok(events.includes('exited'))
  for (const type of [...events, ...Object.keys(createSupervisor().metrics())])
    assert.match(text, new RegExp(`^\\| \`${type}\``, 'm'))
})

test('the index links to every page', () => {
  const index = join(root, 'docs', 'README.md')
  const linked = new Set(links(read(index)).map((link) => join(dirname(index), link.split('#')[0])))
  const lost = find('docs', '.md').filter(
    (page) => page !== index && !linked.has(page) && !page.startsWith(api),
  )
  assert.deepEqual(lost, [])
})

test('docs/design.md names every folder of the sources and every TypeScript file', () => {
  const map = read(join(root, 'docs', 'design.md'))
  const list = (folder) => readdirSync(join(root, folder), { withFileTypes: true })
  const folders = list('ts').filter((entry) => entry.isDirectory())
  const files = ['ts', ...folders.map(({ name }) => join('ts', name))]
    .flatMap(list)
    .filter((entry) => entry.name.endsWith('.ts'))
  const rooms = ['src', 'scripts', 'ts'].flatMap(list).filter((entry) => entry.isDirectory())
  const missing = [...files, ...rooms].filter(({ name }) => !new RegExp(`\\b${name}\\b`).test(map))
  assert.deepEqual(
    missing.map(({ name }) => name),
    [],
  )
})
