// Compiles a strict TypeScript project that uses the package.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const require = createRequire(import.meta.url)
const root = fileURLToPath(new URL('../..', import.meta.url))
const peers = join(root, '__test__', 'peers', 'node_modules')

const compilerOptions = {
  ...{ module: 'nodenext', target: 'es2022', lib: ['es2023', 'esnext.disposable'], types: ['node'] },
  ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true },
  ...{ noImplicitOverride: true, noUnusedLocals: true, skipLibCheck: false },
}

/**
 * `sources`: by name. `uses`: peer packages whose types also need those of browsers. `more`:
 * additional compiler options.
 */
export function assertCompiles(t, sources, uses = [], more = {}) {
  const project = mkdtempSync(join(tmpdir(), 'types-'))
  t.after(() => rmSync(project, { recursive: true, maxRetries: 10 }))
  link(project, 'spawn-owned', root)
  for (const name of ['@types/node', 'undici-types'])
    link(project, name, dirname(require.resolve(`${name}/package.json`)))
  for (const name of uses) link(project, name, join(peers, name))
  const files = Object.keys(sources)
  const lib = uses.length > 0 ? [...compilerOptions.lib, 'dom'] : compilerOptions.lib
  const settings = JSON.stringify({ compilerOptions: { ...compilerOptions, lib, ...more }, files })
  const all = { ...sources, 'package.json': '{}', 'tsconfig.json': settings }
  for (const [name, text] of Object.entries(all)) writeFileSync(join(project, name), text)

  const typescript = dirname(require.resolve('typescript/package.json'))
  const { bin } = JSON.parse(readFileSync(join(typescript, 'package.json'), 'utf8'))
  const compiler = spawnSync(process.execPath, [join(typescript, bin.tsc), '-p', project], {
    encoding: 'utf8',
  })
  assert.equal(compiler.stdout, '')
  assert.equal(compiler.status, 0, compiler.stderr)
}

function link(project, name, target) {
  const path = join(project, 'node_modules', name)
  mkdirSync(dirname(path), { recursive: true })
  symlinkSync(target, path)
}
