// An empty project that depends on spawn-owned, with one small bot as an ES module and as CommonJS.
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'esbuild'
import { bin, root } from '../tools.mjs'

const esm = readFileSync(join(root, 'scripts', 'install', 'project', 'bot.mts'), 'utf8')

/** The CommonJS bot: the same code with other imports. */
const cjs = `import nodeModule = require('node:module')
import owned = require('spawn-owned')
import child_process = require('spawn-owned/child_process')
import agents = require('spawn-owned/claude-agent-sdk')
import pty = require('spawn-owned/node-pty')

type OwnedProcess = owned.OwnedProcess
type RunExit = owned.RunExit
const { list, spawnOwned } = owned
const { exec, spawn } = child_process
const { createSpawner } = agents
// Some loaders pass a \`require\` without a cache.
const loaded = nodeModule.createRequire(__filename).cache
${esm.slice(esm.indexOf('\n/**'))}`

const compilerOptions = {
  ...{ module: 'nodenext', target: 'es2022', lib: ['es2023', 'esnext.disposable'], types: ['node'] },
  ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: false },
  ...{ noImplicitOverride: true, noUnusedLocals: true, outDir: 'out', rootDir: '.' },
}

/** Both bots, as they are named after compilation. */
export const bots = [join('out', 'bot.mjs'), join('out', 'bot.cjs')]

/** Writes the project. `registry`: its address; `versions`: its dependencies. */
export function createProject(folder, registry, versions) {
  mkdirSync(join(folder, 'home'), { recursive: true })
  const files = {
    'package.json': JSON.stringify({ name: 'bot', version: '1.0.0', private: true, dependencies: versions }),
    'tsconfig.json': JSON.stringify({ compilerOptions, files: ['bot.mts', 'bot.cts'] }),
    'bot.mts': esm,
    'bot.cts': cjs,
    '.npmrc': `registry=${registry}/\n`,
    '.yarnrc.yml': [
      `npmRegistryServer: '${registry}'`,
      "unsafeHttpWhitelist: ['127.0.0.1']",
      'enableScripts: false',
      'enableTelemetry: false',
      'enableImmutableInstalls: false',
      // By default Yarn enables its ESM loader only for "type": "module".
      'pnpEnableEsmLoader: true',
      '',
    ].join('\n'),
    // Without it, Yarn looks for a project above this one.
    'yarn.lock': '',
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
}

/**
 * Runs a command in the project, as another user if `uid` is given. It gets none of our
 * environment, and writes only inside the project. Resolves to its stdout, or with `withErrors` also to
 * its stderr.
 */
export function inProject(folder, command, args, { uid, env = {}, withErrors = false } = {}) {
  const own = { PATH: process.env.PATH, HOME: join(folder, 'home'), LANG: 'C.UTF-8', CI: '1', ...env }
  const user = uid === undefined ? {} : { uid, gid: uid }
  const child = spawn(command, args, { cwd: folder, env: own, stdio: ['ignore', 'pipe', 'pipe'], ...user })
  return new Promise((resolve, reject) => {
    let [stdout, stderr] = ['', '']
    child.stdout.setEncoding('utf8').on('data', (text) => {
      stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text) => {
      stderr += text
    })
    child.on('error', reject)
    child.on('close', (code) => {
      if (code === 0) resolve(withErrors ? { stdout, stderr } : stdout)
      else reject(new Error(`${command} ${args.join(' ')} ended with ${code}:\n${stdout}${stderr}`))
    })
  })
}

export const compile = (folder) => inProject(folder, process.execPath, [bin('tsc'), '-p', folder])

/** One bundle per module format, with all packages external. */
export async function bundle(folder) {
  for (const [format, file] of [
    ['esm', 'bot.mts'],
    ['cjs', 'bot.cts'],
  ]) {
    const out = join('bundled', `bot.${format === 'esm' ? 'mjs' : 'cjs'}`)
    const how = { bundle: true, platform: 'node', external: ['spawn-owned'], format, logLevel: 'warning' }
    await build({ ...how, absWorkingDir: folder, entryPoints: [file], outfile: out })
  }
}

/** Copies the compiled bots of one project to another that cannot compile them. */
export const copyBots = (from, to) => cpSync(join(from, 'out'), join(to, 'out'), { recursive: true })
