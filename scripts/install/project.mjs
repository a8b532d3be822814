// An empty project that depends on spawn-owned, with one small bot as an ES module and as CommonJS.
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bin, root } from '../tools.mjs'

const esm = readFileSync(join(root, 'scripts', 'install', 'project', 'bot.mts'), 'utf8')

/** The same, but for how it gets hold of its modules. */
const cjs = `import owned = require('spawn-owned')
import child_process = require('spawn-owned/child_process')
import agents = require('spawn-owned/claude-agent-sdk')
import pty = require('spawn-owned/node-pty')

type OwnedProcess = owned.OwnedProcess
type RunExit = owned.RunExit
const { list, spawnOwned } = owned
const { exec, spawn } = child_process
const { createSpawner } = agents
const loaded = require.cache
${esm.slice(esm.indexOf('\n/**'))}`

const compilerOptions = {
  ...{ module: 'nodenext', target: 'es2022', lib: ['es2023', 'esnext.disposable'], types: ['node'] },
  ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: false },
  ...{ noImplicitOverride: true, noUnusedLocals: true, outDir: 'out', rootDir: '.' },
}

/** Both bots, as they are called once they are compiled. */
export const bots = [join('out', 'bot.mjs'), join('out', 'bot.cjs')]

/** Writes it. `registry`: its address; `versions`: what it depends on. */
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
      // By itself it looks for "type": "module" only.
      'pnpEnableEsmLoader: true',
      '',
    ].join('\n'),
    // Without one, Yarn looks whether the project is a part of another one above.
    'yarn.lock': '',
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
}

/** As its own user, if there is one. Nothing of ours is in the environment, and nothing is written but in the project. */
export function inProject(folder, command, args, { uid, env = {} } = {}) {
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
      if (code === 0) resolve(stdout)
      else reject(new Error(`${command} ${args.join(' ')} ended with ${code}:\n${stdout}${stderr}`))
    })
  })
}

export const compile = (folder) => inProject(folder, process.execPath, [bin('tsc'), '-p', folder])

/** One bundle per kind of module, with every package left out of it. */
export async function bundle(folder) {
  for (const [format, file] of [
    ['esm', 'bot.mts'],
    ['cjs', 'bot.cts'],
  ]) {
    const out = join('bundled', `bot.${format === 'esm' ? 'mjs' : 'cjs'}`)
    const how = [
      '--bundle',
      '--platform=node',
      '--external:spawn-owned',
      `--format=${format}`,
      `--outfile=${out}`,
    ]
    await inProject(folder, process.execPath, [bin('esbuild'), file, ...how, '--log-level=warning'])
  }
}

/** The compiled bots of one project, for another that cannot be compiled where it is. */
export const copyBots = (from, to) => cpSync(join(from, 'out'), join(to, 'out'), { recursive: true })
