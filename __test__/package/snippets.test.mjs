// The snippets of the documents compile in a strict TypeScript project, and those that can run do
// run.
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { assert, test } from '../support/prelude.mjs'
import { allSnippets } from '../support/snippets.mjs'
import { NO_LINKS, nodeOnly, posixOnly } from '../support/system.mjs'
import { assertCompiles } from '../support/types.mjs'

const snippets = allSnippets()
const compiled = snippets.filter(({ notCompiled }) => notCompiled === undefined)
const runnable = compiled.filter(({ compiledOnly }) => compiledOnly === undefined)
/** The packages of other authors that snippets import. */
const uses = [
  ...['@agentclientprotocol/sdk', '@anthropic-ai/claude-agent-sdk', '@anthropic-ai/sdk', 'zod'],
  ...['@github/copilot-sdk', '@openai/codex-sdk', '@opencode-ai/sdk', 'vscode-jsonrpc'],
  ...['client', 'core', 'sdk'].map((name) => `@modelcontextprotocol/${name}`),
]
const peers = fileURLToPath(new URL('../peers/node_modules', import.meta.url))

const source = ({ before, code }) => `${before}\n${code}\nexport {}\n`

test(
  'every snippet compiles in a strict TypeScript project',
  posixOnly(NO_LINKS, { timeout: 120_000 }),
  (t) => {
    assert.ok(compiled.length > 40, `found only ${compiled.length} snippets`)
    const files = compiled.map((snippet) => [`${snippet.name.replaceAll('/', '-')}.mts`, source(snippet)])
    // A snippet may show a value without a use of it. Without the names of browsers: `prompt` must
    // be one of the snippet.
    const lib = ['es2023', 'esnext.disposable']
    assertCompiles(t, Object.fromEntries(files), uses, { lib, noUnusedLocals: false, skipLibCheck: true })
  },
)

test('only few snippets are fragments that cannot be compiled or run', () => {
  const marked = (mark) => snippets.filter((snippet) => snippet[mark] !== undefined).map(({ name }) => name)
  assert.ok(marked('notCompiled').length <= 3, marked('notCompiled').join(', '))
  const notRun = marked('compiledOnly').filter((name) => name.includes('.md:'))
  assert.ok(notRun.length <= 10, notRun.join(', '))
})

const inNode = nodeOnly('the snippets are written for Node', posixOnly(NO_LINKS, { timeout: 180_000 }))

test('every snippet that can run does run', inNode, async (t) => {
  // Imported here: there is no esbuild for Wine.
  const { transform } = await import('esbuild')
  for (const snippet of runnable) {
    await t.test(snippet.name, async (t) => {
      const folder = project(t)
      const { code } = await transform(source(snippet), { loader: 'ts', format: 'esm', target: 'node20' })
      await writeFile(join(folder, 'snippet.mjs'), code)
      const result = spawnSync(process.execPath, ['snippet.mjs'], {
        cwd: folder,
        encoding: 'utf8',
        timeout: 60_000,
        env: environment(folder),
      })
      assert.equal(result.status, 0, `${result.signal ?? ''}\n${result.stdout}\n${result.stderr}`)
    })
  }
})

/** A bot's folder: the packages, and stand-ins for the agents that the snippets start. */
function project(t) {
  const folder = mkdtempSync(join(tmpdir(), 'snippet-'))
  t.after(() => rmSync(folder, { recursive: true, maxRetries: 10 }))
  cpSync(fileURLToPath(new URL('../fixtures/snippets', import.meta.url)), folder, { recursive: true })
  for (const name of readdirSync(join(folder, 'bin'))) chmodSync(join(folder, 'bin', name), 0o755)
  symlinkSync(peers, join(folder, 'node_modules'))
  mkdirSync(join(folder, 'data'))
  return folder
}

function environment(folder) {
  const { SPAWN_OWNED_REGISTRY, ...env } = process.env
  return { ...env, PATH: [join(folder, 'bin'), dirname(process.execPath), env.PATH].join(delimiter) }
}
