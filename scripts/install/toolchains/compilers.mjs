// TypeScript in all module formats, and the loaders that run it without a build.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bin } from '../../tools.mjs'
import { runBots } from '../bots.mjs'
import { inProject } from '../project.mjs'

const node = process.execPath

export const compilers = {
  typescript: {
    isShort: true,
    async check(project) {
      const modes = [
        { module: 'esnext', moduleResolution: 'bundler' },
        { module: 'preserve', moduleResolution: 'bundler' },
        { module: 'node20' },
      ]
      for (const mode of modes) {
        const compilerOptions = { ...mode, strict: true, noEmit: true, types: ['node'], skipLibCheck: false }
        const files = mode.module === 'node20' ? ['bot.mts', 'bot.cts'] : ['bot.mts']
        const lib = ['es2023', 'esnext.disposable']
        const settings = { compilerOptions: { ...compilerOptions, target: 'es2022', lib }, files }
        writeFileSync(join(project, 'tsconfig.json'), JSON.stringify(settings))
        await inProject(project, node, [bin('tsc'), '-p', project])
      }
      return 'moduleResolution "bundler" and "node20", strict (npm above: "nodenext")'
    },
  },

  tsx: {
    packages: { tsx: '4.23.15' },
    isShort: true,
    async check(project, tools) {
      await runBots(project, {
        node: [node, join(tools, 'tsx', 'dist', 'cli.mjs')],
        files: ['bot.mts', 'bot.cts'],
      })
      return 'run as ESM and CommonJS'
    },
  },

  'ts-node': {
    packages: { 'ts-node': '10.9.2', typescript: '5.9.3' },
    async check(project, tools) {
      const [register, loader] = [join(tools, 'ts-node', 'register'), join(tools, 'ts-node', 'esm.mjs')]
      await runBots(project, { node: [node, '--require', register], files: ['bot.cts'] })
      await runBots(project, { node: [node, '--no-warnings', '--loader', loader], files: ['bot.mts'] })
      return 'run as ESM and CommonJS'
    },
  },
}
