// Bundlers, with the package outside of the bundle (as documented) and inside of it.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'esbuild'
import { runBots } from '../bots.mjs'
import { inProject } from '../project.mjs'
import { asCommonJs, asModule, PRINTED } from './short-bot.mjs'

const node = process.execPath
const write = (project, name, text) => writeFileSync(join(project, name), text)

/** Runs a bundle of the short bot. `isInside`: whether it must contain a copy of our import. */
async function runShort(project, file, isInside) {
  const contains = /is not installed beside|A bundler has copied/.test(
    readFileSync(join(project, file), 'utf8'),
  )
  assert.equal(contains, isInside, `${file} ${contains ? 'contains' : 'does not contain'} the package`)
  assert.equal(await inProject(project, node, [file]), PRINTED, file)
}

export const bundlers = {
  esbuild: {
    isShort: true,
    async check(project) {
      const common = { absWorkingDir: project, bundle: true, platform: 'node', logLevel: 'error' }
      const forms = [
        ['esm', 'bot.mts', 'mjs'],
        ['cjs', 'bot.cts', 'cjs'],
      ]
      for (const [format, entry, extension] of forms) {
        const outfile = `inside.${extension}`
        await build({ ...common, format, entryPoints: [entry], outfile })
        await runBots(project, { files: [outfile] })
      }
      // The usual case: ES modules in the source, CommonJS in the bundle. import.meta.url is lost.
      write(project, 'short.mjs', asModule)
      await build({
        ...common,
        format: 'cjs',
        entryPoints: ['short.mjs'],
        outfile: 'short.cjs',
        logLevel: 'silent',
      })
      await runShort(project, 'short.cjs', true)
      return 'the package inside of bundles of both kinds (outside: above)'
    },
  },

  vite: {
    packages: { vite: '8.3.8' },
    async check(project, tools) {
      write(project, 'short.mjs', asModule)
      const vite = join(tools, 'vite', 'bin', 'vite.js')
      for (const [folder, noExternal] of [
        ['outside', '[]'],
        ['inside', 'true'],
      ]) {
        const config = `export default { ssr: { noExternal: ${noExternal} }, build: { outDir: '${folder}', minify: false } }`
        write(project, 'vite.config.mjs', config)
        await inProject(project, node, [vite, 'build', '--ssr', 'short.mjs', '--logLevel', 'error'])
        await runShort(project, join(folder, 'short.mjs'), folder === 'inside')
      }
      return 'SSR builds, with the package outside and inside'
    },
  },

  tsup: {
    packages: { tsup: '8.5.0', typescript: '5.9.3' },
    async check(project, tools) {
      write(project, 'short.ts', asModule)
      const tsup = join(tools, 'tsup', 'dist', 'cli-default.js')
      for (const [folder, noExternal] of [
        ['outside', []],
        ['inside', ['spawn-owned']],
      ]) {
        const config = {
          entry: ['short.ts'],
          format: ['esm', 'cjs'],
          outDir: folder,
          noExternal,
          silent: true,
        }
        write(project, 'tsup.config.json', JSON.stringify(config))
        await inProject(project, node, [tsup])
        for (const file of ['short.mjs', 'short.js'])
          await runShort(project, join(folder, file), folder === 'inside')
      }
      return 'ESM and CommonJS, with the package outside and inside'
    },
  },

  webpack: {
    packages: { webpack: '5.112.2' },
    async check(project, tools) {
      write(project, 'module.mjs', asModule)
      write(project, 'commonjs.cjs', asCommonJs)
      const script = (entry, folder, externals) => `
        require(${JSON.stringify(join(tools, 'webpack'))})({
          entry: './${entry}', target: 'node', mode: 'production', optimization: { minimize: false },
          output: { path: ${JSON.stringify(join(project, folder))}, filename: '${entry}.js' },
          externals: ${externals},
        }, (error, stats) => {
          const messages = error ? [error] : stats.toJson().errors
          for (const { message } of messages) console.error(message)
          process.exitCode = messages.length
        })`
      for (const entry of ['module.mjs', 'commonjs.cjs']) {
        const external = "{ 'spawn-owned': 'commonjs spawn-owned' }"
        await inProject(project, node, ['-e', script(entry, 'outside', external)])
        await inProject(project, node, ['-e', script(entry, 'inside', '{}')])
        for (const folder of ['outside', 'inside'])
          await runShort(project, join(folder, `${entry}.js`), folder === 'inside')
      }
      return 'ESM and CommonJS sources, with the package outside and inside'
    },
  },
}
