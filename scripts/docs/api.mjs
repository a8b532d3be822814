// npm run docs:api: generates docs/api from the .d.ts files with typedoc.
// `--check` writes nothing, and fails if the pages would change.
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, relative } from 'node:path'
import { fetchTools } from '../fetch.mjs'
import { installPeers } from '../peers.mjs'
import { root, run, say } from '../tools.mjs'

/** typedoc needs its own TypeScript, because it does not support our version yet. */
const versions = { typedoc: '0.28.20', 'typedoc-plugin-markdown': '4.14.1', typescript: '5.9.3' }
const tools = join(root, 'target', 'docs')
const api = join(root, 'docs', 'api')

/** The declaration files of the public modules, index.d.ts first. */
const entries = [
  'index.d.ts',
  ...readdirSync(join(root, 'types'))
    .filter((file) => file.endsWith('.d.ts'))
    .map((file) => join('types', file)),
]

fetchTools(tools, versions)
// Some declarations use types of these packages.
installPeers()
const made = mkdtempSync(join(tmpdir(), 'spawn-owned-api-'))
process.on('exit', () => rmSync(made, { recursive: true, force: true }))
generate(made)
const pages = readdirSync(made, { recursive: true }).filter((page) => page.endsWith('.md'))

if (process.argv.includes('--check')) {
  const stale = pages.filter((page) => read(join(api, page)) !== read(join(made, page)))
  if (stale.length > 0) {
    console.error(
      `docs/api does not agree with the declarations (${stale.join(', ')}). Run: npm run docs:api`,
    )
    process.exit(1)
  }
} else {
  rmSync(api, { recursive: true, force: true })
  cpSync(made, api, { recursive: true })
  say(`wrote ${pages.length} pages in ${relative(root, api)}`)
}

function read(file) {
  return existsSync(file) ? readFileSync(file, 'utf8') : ''
}

/** Copies the declarations into one folder: typedoc names a module after its path. Returns the copies. */
function stage() {
  const folder = join(tools, 'declarations')
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  return entries.map((entry) => {
    const copy = join(folder, basename(entry))
    writeFileSync(copy, withoutTuples(read(join(root, entry))).replaceAll("'../index.js'", "'./index.js'"))
    return copy
  })
}

/** Omits the 16 overloads for a `stdio` of three elements: they differ only in streams. */
function withoutTuples(declarations) {
  return declarations.replace(/^export function \w+\([^)]*WithStdioTuple<[^)]*\): .*\n/gm, '')
}

function generate(out) {
  const config = join(tools, 'tsconfig.json')
  const modules = ['node_modules', '__test__/peers/node_modules'].map((folder) => join(root, folder, '*'))
  const compilerOptions = {
    strict: true,
    module: 'nodenext',
    target: 'es2023',
    lib: ['esnext'],
    types: ['node'],
    typeRoots: [join(root, 'node_modules', '@types')],
    paths: { '*': modules },
    skipLibCheck: true,
  }
  const files = stage()
  writeFileSync(config, JSON.stringify({ compilerOptions, files }))
  const options = {
    entryPoints: files,
    tsconfig: config,
    plugin: ['typedoc-plugin-markdown'],
    out,
    name: 'API',
    readme: 'none',
    router: 'module',
    sort: ['source-order'],
    groupOrder: ['Functions', 'Classes', '*'],
    disableSources: true,
    excludeExternals: true,
    hideBreadcrumbs: true,
    hidePageHeader: true,
    parametersFormat: 'table',
    interfacePropertiesFormat: 'table',
    classPropertiesFormat: 'table',
    typeDeclarationFormat: 'table',
    useCodeBlocks: true,
    expandParameters: true,
    logLevel: 'Error',
  }
  const settings = join(tools, 'typedoc.json')
  writeFileSync(settings, JSON.stringify(options))
  run(process.execPath, [join(tools, 'node_modules', 'typedoc', 'bin', 'typedoc'), '--options', settings], {
    cwd: tools,
  })
}
