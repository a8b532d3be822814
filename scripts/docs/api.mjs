// npm run docs:api: docs/api, made from the .d.ts files by typedoc. `--check` only says whether it would change.
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fetchTools } from '../fetch.mjs'
import { installPeers } from '../peers.mjs'
import { root, run, say } from '../tools.mjs'

/** typedoc needs a TypeScript of its own: it does not know ours yet. */
const versions = { typedoc: '0.28.20', 'typedoc-plugin-markdown': '4.14.1', typescript: '5.9.3' }
const tools = join(root, 'target', 'docs')
const api = join(root, 'docs', 'api')

/** Every public module has its declarations at the root. */
const entries = readdirSync(root)
  .filter((file) => file.endsWith('.d.ts'))
  .sort((one, other) => Number(other === 'index.d.ts') - Number(one === 'index.d.ts'))

fetchTools(tools, versions)
// Some declarations are in terms of other packages' types.
installPeers()
const made = mkdtempSync(join(tmpdir(), 'spawn-owned-api-'))
process.on('exit', () => rmSync(made, { recursive: true, force: true }))
generate(made)
const pages = readdirSync(made, { recursive: true }).filter((page) => page.endsWith('.md'))

if (process.argv.includes('--check')) {
  const stale = pages.filter((page) => read(join(api, page)) !== read(join(made, page)))
  if (stale.length > 0) {
    console.error(`docs/api is behind index.d.ts (${stale.join(', ')}): npm run docs:api`)
    process.exit(1)
  }
} else {
  rmSync(api, { recursive: true, force: true })
  cpSync(made, api, { recursive: true })
  say(`${pages.length} pages in ${relative(root, api)}`)
}

function read(file) {
  return existsSync(file) ? readFileSync(file, 'utf8') : ''
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
  const files = entries.map((entry) => join(root, entry))
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
