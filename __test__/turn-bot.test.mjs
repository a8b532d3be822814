// examples/turn-bot: what a person types, what the bot says, and what is left of its agents.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry, killWithHelpers, until } from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { NO_SIGNALS, nodeOnly, posixTests } from './support/system.mjs'
import { openTerminal } from './support/terminal.mjs'
import { openWitness } from './support/witness.mjs'

const { describe, test } = posixTests(NO_SIGNALS)

const bot = fileURLToPath(new URL('../examples/turn-bot/bot.mjs', import.meta.url))
const options = nodeOnly('the example is written for Node', { timeout: 120_000 })
const CTRL_C = '\x03'
/** fixtures/half-setsid.c: a root and 32 children. */
const TREE = 33

/** An agent that stays, with a tree of which every second process has left the session. */
function agentWithWitness(t) {
  const witness = openWitness(t)
  return { witness, agent: `${program('half-setsid')} ${witness.path}` }
}

/** The bot, and a person who chats with it. */
async function startChat(t, { path = freshRegistry(), agent, args = [] } = {}) {
  const flags = agent ? ['--agent', agent] : []
  const child = spawn(process.execPath, [bot, ...flags, ...args], {
    env: { ...process.env, SPAWN_OWNED_REGISTRY: path },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const chat = new Chat(child, path)
  t.after(() => child.kill('SIGKILL'))
  await chat.says(/listens/)
  return chat
}

class Chat {
  said = ''
  #seen = 0

  constructor(child, path) {
    this.child = child
    this.path = path
    this.exit = once(child, 'exit').then(([code, signal]) => code ?? signal)
    child.stdout.setEncoding('utf8').on('data', (text) => {
      this.said += text
    })
    child.stdin.on('error', () => {})
  }

  type(line) {
    this.child.stdin.write(`${line}\n`)
  }

  /** Resolves with what matches, after what was seen before. */
  async says(pattern) {
    const rest = () => this.said.slice(this.#seen)
    const match = await until(() => pattern.exec(rest()), `${pattern}`).catch((error) => {
      throw new Error(`${error.message}; but it has said:\n${this.said}`)
    })
    this.#seen += match.index + match[0].length
    return match
  }

  kill() {
    this.child.kill('SIGKILL')
    return this.exit
  }
}

/** A visit to the dev server that the stand-in says it has started. The connection is closed when that process has ended. */
async function visitDevServer(chat, session) {
  const [, port] = await chat.says(new RegExp(`${session}\\| dev server \\d+ at http://127.0.0.1:(\\d+)`))
  const socket = connect(Number(port), '127.0.0.1').on('error', () => {})
  await once(socket, 'connect')
  return { ended: once(socket, 'close') }
}

describe('turns', options, () => {
  test('are answered, and what the agent has left goes with them', async (t) => {
    const chat = await startChat(t)
    assert.match(chat.said, /^boot: nothing was left/)
    chat.type('alice: why?')
    await chat.says(/alice\| thinking about "why\?"/)
    await chat.says(/alice\| the answer is 42/)
    await chat.says(/alice: exited with code 0; \d process(es)? that had left its session outlived it/)
    chat.type('/ps')
    await chat.says(/nothing in flight/)
  })

  test('of several sessions are cancelled one by one', async (t) => {
    const chat = await startChat(t)
    chat.type('alice: wait for ever')
    const first = await visitDevServer(chat, 'alice')
    chat.type('bob: wait for ever')
    const second = await visitDevServer(chat, 'bob')
    chat.type('alice: and now?')
    await chat.says(/alice: one turn at a time/)
    chat.type('/cancel alice')
    await chat.says(/alice: cancelled, nothing of it is left/)
    await first.ended
    chat.type('/ps')
    const [, rest] = await chat.says(/\n(bob: \d+ of bot .*)\n/)
    assert.match(rest, /wait for ever/)
    chat.type('/cancel bob')
    await chat.says(/bob: cancelled, nothing of it is left/)
    await second.ended
    chat.type('/cancel nobody')
    await chat.says(/nobody: nothing in flight/)
  })

  test('have a limit', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('/timeout 4')
    chat.type('alice: hello')
    await witness.ready(TREE)
    await chat.says(/alice: turn timed out after 4s/)
    assertGone(witness)
  })

  test('that another bot has begun are cancelled from the registry', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    const other = await startChat(t, { path: chat.path })
    chat.type('alice: hello')
    await witness.ready(TREE)
    other.type('/cancel alice')
    await other.says(/alice: cancelled, nothing of it is left/)
    assertGone(witness)
    await chat.says(/alice: cancelled/)
  })
})

describe('the bot', options, () => {
  test('crashes, and comes back to nothing', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('alice: hello')
    await witness.ready(TREE)
    const [{ pid }] = createSupervisor({ registryPath: chat.path }).list()
    chat.type('/crash')
    assert.equal(await chat.exit, 'SIGKILL')
    await witness.gone(20_000)
    const next = await startChat(t, { path: chat.path })
    assert.match(next.said, new RegExp(`^boot: ended (with an|what an) earlier bot( had left)?: ${pid}\n`))
    next.type('alice: are you back?')
    await next.says(/alice\| the answer is 42/)
  })

  test('crashes together with all that looks after its turns, and ends them when it is back', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('alice: hello')
    await witness.ready(TREE)
    await killWithHelpers(chat.child.pid)
    await chat.kill()
    assertAlive(witness)
    const next = await startChat(t, { path: chat.path })
    assert.match(next.said, /^boot: ended what an earlier bot had left: \d+\n/)
    assertGone(witness)
  })

  test('is told to go by Ctrl-C, and goes when all is gone', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const terminal = openTerminal(t, process.execPath, [bot, '--agent', agent], {
      env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() },
    })
    await terminal.sees(/listens/)
    terminal.type('alice: hello\r')
    await witness.ready(TREE)
    terminal.type(CTRL_C)
    await terminal.sees(/bye: 1 ended with the bot/)
    assertGone(witness)
    assert.equal((await terminal.child.wait()).exitCode, 130)
  })

  test('goes with its chat', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('alice: hello')
    await witness.ready(TREE)
    chat.child.stdin.end()
    assert.equal(await chat.exit, 0)
    assertGone(witness)
  })
})
