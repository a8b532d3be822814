// Next.js: a route that owns a tree, with `next start` and as a standalone server.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { inProject } from '../project.mjs'

const node = process.execPath

const files = {
  'app/layout.js': 'export default ({ children }) => <html><body>{children}</body></html>\n',
  'app/page.js': 'export default () => <p>bot</p>\n',
  'app/api/route.js': `
import { spawnOwned } from 'spawn-owned'
export const dynamic = 'force-dynamic'
export async function GET() {
  const tree = spawnOwned('sh', ['-c', 'sleep 1000 & echo up; wait'])
  await new Promise((resolve) => tree.stdout.once('data', resolve))
  const { reason, survivors } = await tree.cancel()
  return Response.json({ reason, survivors })
}
`,
}

/** As documented in docs/toolchains.md. `root`: the folder with all packages, for this test only. */
const config = (root) => `
export default {
  serverExternalPackages: ['spawn-owned'],
  output: process.env.STANDALONE ? 'standalone' : undefined,
  outputFileTracingIncludes: { '/*': ['./node_modules/{spawn-owned,@spawn-owned}/**'] },
  outputFileTracingRoot: ${JSON.stringify(root)},
  turbopack: { root: ${JSON.stringify(root)} },
}
`

export const next = {
  next: {
    packages: { next: '16.4.6', react: '19.3.1', 'react-dom': '19.3.1' },
    isInPlace: true,
    async check(project, tools) {
      for (const [name, text] of Object.entries(files)) {
        mkdirSync(dirname(join(project, name)), { recursive: true })
        writeFileSync(join(project, name), text)
      }
      // With these, Next.js would want to check types.
      for (const name of ['tsconfig.json', 'bot.mts', 'bot.cts']) rmSync(join(project, name))
      const root = dirname(tools)
      writeFileSync(join(project, 'next.config.mjs'), config(root))
      const program = join(tools, 'next', 'dist', 'bin', 'next')
      const env = { NEXT_TELEMETRY_DISABLED: '1' }
      await inProject(project, node, [program, 'build'], { env })
      await serves(project, [program, 'start'], env)
      await inProject(project, node, [program, 'build'], { env: { ...env, STANDALONE: '1' } })
      // The folder that an image would get. Nothing else of the project must be needed.
      const image = join(dirname(root), 'next-image')
      rmSync(image, { recursive: true, force: true })
      // Links stay relative, as in an image.
      cpSync(join(project, '.next', 'standalone'), image, { recursive: true, verbatimSymlinks: true })
      const server = readdirSync(image, { recursive: true }).find(
        (path) => path.endsWith('server.js') && !path.includes('node_modules') && !path.includes('.next'),
      )
      await serves(image, [join(image, server)], env)
      return 'next start and output: standalone, with serverExternalPackages'
    },
  },
}

/** Starts the server, and asks the route. */
async function serves(cwd, args, more) {
  const port = await freePort()
  const env = { PATH: process.env.PATH, HOME: cwd, PORT: String(port), HOSTNAME: '127.0.0.1', ...more }
  const server = spawn(node, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [server.stdout, server.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      said += text
    })
  const closed = new Promise((resolve) => server.on('close', resolve))
  try {
    const answer = await ask(`http://127.0.0.1:${port}/api`, () => server.exitCode === null)
    assert.deepEqual(answer, { reason: 'manual-cancel', survivors: [] }, said)
  } catch (error) {
    throw new Error(`${args.join(' ')} printed:\n${said}`, { cause: error })
  } finally {
    server.kill('SIGTERM')
    await closed
  }
}

async function ask(url, isAlive) {
  for (;;) {
    try {
      const response = await fetch(url)
      return response.ok ? await response.json() : await response.text()
    } catch (error) {
      if (!isAlive()) throw error
      await delay(200)
    }
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}
