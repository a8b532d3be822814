// Programs that restart a bot: when files change, or when it exits. A restarted bot leaves no process.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { inProject } from '../project.mjs'

const node = process.execPath
const LIMIT_MS = 60_000

/** It starts a run, ends it after a while, and does so again: the registry changes all the time. */
const bot = `
const { appendFileSync } = require('node:fs')
const { spawnOwned } = require('spawn-owned')
appendFileSync('starts.log', process.pid + '\\n')
async function main() {
  for (;;) {
    const tree = spawnOwned('sh', ['-c', 'sleep 1000 & sleep 0.3'])
    await tree.wait()
    appendFileSync('rounds.log', '.')
  }
}
main()
`

const linesOf = (file) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [])

async function until(condition, what) {
  const giveUpAt = Date.now() + LIMIT_MS
  while (!condition()) {
    if (Date.now() > giveUpAt) throw new Error(`it takes too long until ${what}`)
    await delay(50)
  }
}

/** The bot of a project, and what it has done so far. */
function openBot(project) {
  writeFileSync(join(project, 'bot.cjs'), bot)
  const [starts, rounds] = ['starts.log', 'rounds.log'].map((name) => join(project, name))
  return {
    starts: () => linesOf(starts).length,
    /** Resolves when it has finished so many more runs. */
    async rounds(count) {
      const length = () => (existsSync(rounds) ? readFileSync(rounds).length : 0)
      const before = length()
      await until(() => length() >= before + count, `the bot has finished ${count} more runs`)
    },
    change: () => writeFileSync(join(project, 'bot.cjs'), `${bot}// changed\n`),
  }
}

/**
 * Runs a watcher in the project while `action` runs, and ends it. No bot is alive afterwards. Resolves
 * with what the watcher has printed.
 */
async function watching(project, args, action) {
  const env = { PATH: process.env.PATH, HOME: join(project, 'home'), CI: '1' }
  const watcher = spawn(node, args, { cwd: project, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [watcher.stdout, watcher.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      said += text
    })
  const closed = new Promise((resolve) => watcher.on('close', resolve))
  try {
    await action()
  } catch (error) {
    throw new Error(`${args.join(' ')} printed:\n${said}`, { cause: error })
  } finally {
    watcher.kill('SIGTERM')
    await closed
  }
  const alive = linesOf(join(project, 'starts.log')).filter((pid) => existsSync(`/proc/${pid}`))
  assert.deepEqual(alive, [], 'a bot is alive after its watcher')
  return said
}

/** The watcher restarts the bot when its code changes, and not when the registry changes. */
async function restartsForCodeOnly(project, args) {
  const { starts, rounds, change } = openBot(project)
  await watching(project, args, async () => {
    await rounds(3)
    assert.equal(starts(), 1, 'the registry has restarted the bot')
    change()
    await until(() => starts() === 2, 'the watcher has restarted the changed bot')
    await rounds(2)
    assert.equal(starts(), 2)
  })
}

/** A bot inside of Vite's development server, as a plugin has it. It prints that Vite watches the registry. */
const viteConfig = `
import { createRequire } from 'node:module'
const bot = {
  name: 'bot',
  configureServer(server) {
    createRequire(import.meta.url)('./bot.cjs')
    server.watcher.on('all', (_, file) => {
      if (file.endsWith('process-registry.json')) console.log('the registry has changed')
    })
  },
}
export default { plugins: [bot] }
`

export const watchers = {
  nodemon: {
    packages: { nodemon: '3.1.14' },
    async check(project, tools) {
      // As documented: without it, each change of the registry is a restart.
      writeFileSync(join(project, 'nodemon.json'), JSON.stringify({ ignore: ['data/'], ext: 'cjs,json' }))
      await restartsForCodeOnly(project, [join(tools, 'nodemon', 'bin', 'nodemon.js'), 'bot.cjs'])
      return 'restarts for changed code, and not for the registry (ignored, as documented)'
    },
  },

  'node-watch': {
    isShort: true,
    async check(project) {
      await restartsForCodeOnly(project, ['--watch', 'bot.cjs'])
      return 'node --watch restarts for changed code, and not for the registry'
    },
  },

  'tsx-watch': {
    packages: { tsx: '4.23.15' },
    async check(project, tools) {
      await restartsForCodeOnly(project, [join(tools, 'tsx', 'dist', 'cli.mjs'), 'watch', 'bot.cjs'])
      return 'tsx watch restarts for changed code, and not for the registry'
    },
  },

  'vite-dev': {
    packages: { vite: '8.3.8' },
    async check(project, tools) {
      const { starts, rounds } = openBot(project)
      writeFileSync(join(project, 'vite.config.mjs'), viteConfig)
      writeFileSync(join(project, 'index.html'), '<script type="module" src="/main.js"></script>\n')
      writeFileSync(join(project, 'main.js'), 'console.log(1)\n')
      const vite = [join(tools, 'vite', 'bin', 'vite.js'), '--port', '0', '--clearScreen', 'false']
      const said = await watching(project, vite, () => rounds(5))
      assert.equal(starts(), 1)
      assert.match(said, /the registry has changed/, 'Vite does not watch the registry')
      assert.doesNotMatch(said, /reload|restart/)
      return 'the development server neither reloads nor restarts when the registry changes'
    },
  },

  pm2: {
    packages: { pm2: '7.0.4' },
    async check(project, tools) {
      const { starts, rounds } = openBot(project)
      const env = { PM2_HOME: join(project, 'home', 'pm2') }
      const pm2 = (...args) =>
        inProject(project, node, [join(tools, 'pm2', 'bin', 'pm2'), ...args, '--silent'], { env })
      const settings = {
        name: 'bot',
        script: 'bot.cjs',
        watch: true,
        ignore_watch: ['data', 'home', '*.log'],
      }
      writeFileSync(
        join(project, 'ecosystem.config.cjs'),
        `module.exports = { apps: [${JSON.stringify(settings)}] }`,
      )
      try {
        await pm2('start', 'ecosystem.config.cjs')
        await rounds(3)
        assert.equal(starts(), 1)
        await pm2('restart', 'bot')
        await until(() => starts() === 2, 'pm2 has restarted the bot')
        await rounds(2)
        await pm2('delete', 'bot')
      } finally {
        await pm2('kill')
      }
      const alive = linesOf(join(project, 'starts.log')).filter((pid) => existsSync(`/proc/${pid}`))
      assert.deepEqual(alive, [])
      return 'start, restart and delete; watch mode with the registry ignored'
    },
  },
}
