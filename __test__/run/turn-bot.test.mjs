// examples/turn-bot: the input of a user, the output of the bot, and the end of its agents.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry, killWithHelpers, until } from '../support/bots.mjs'
import { builtExample } from '../support/examples.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { NO_SIGNALS, nodeOnly, posixTests } from '../support/system.mjs'
import { openTerminal } from '../support/terminal.mjs'

const { describe, test } = posixTests(NO_SIGNALS)

const bot = builtExample('turn-bot', 'bot')
const options = nodeOnly('the example is written for Node', { timeout: 120_000 })
const CTRL_C = '\x03'
/** fixtures/half-setsid.c: a root and 32 children. */
const TREE = 33

/** Returns an agent that stays alive. Every second process of its tree has left the session. */
function agentWithWitness(t) {
  const witness = openWitness(t)
  return { witness, agent: `${program('half-setsid')} ${witness.path}` }
}

/** Starts the bot with a chat. */
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
  output = ''
  #seen = 0

  constructor(child, path) {
    this.child = child
    this.path = path
    this.exit = once(child, 'exit').then(([code, signal]) => code ?? signal)
    child.stdout.setEncoding('utf8').on('data', (text) => {
      this.output += text
    })
    child.stdin.on('error', () => {})
  }

  type(line) {
    this.child.stdin.write(`${line}\n`)
  }

  /** Resolves with the next match after the previous one. */
  async says(pattern) {
    const rest = () => this.output.slice(this.#seen)
    const match = await until(() => pattern.exec(rest()), `${pattern}`).catch((error) => {
      throw new Error(`${error.message}; the output is:\n${this.output}`)
    })
    this.#seen += match.index + match[0].length
    return match
  }

  kill() {
    this.child.kill('SIGKILL')
    return this.exit
  }
}

/**
 * Connects to the dev server of the stand-in agent. The connection closes when that process ends.
 */
async function connectToDevServer(chat, session) {
  const [, port] = await chat.says(new RegExp(`${session}\\| dev server \\d+ at http://127.0.0.1:(\\d+)`))
  const socket = connect(Number(port), '127.0.0.1').on('error', () => {})
  await once(socket, 'connect')
  return { ended: once(socket, 'close') }
}

describe('turns', options, () => {
  test('are answered, and the leftovers of the agent end with them', async (t) => {
    const chat = await startChat(t)
    assert.match(chat.output, /^boot: nothing was left/)
    chat.type('alice: why?')
    await chat.says(/alice\| thinking about "why\?"/)
    await chat.says(/alice\| the answer is 42/)
    await chat.says(/alice: exited with code 0; \d process(es)? that had left its session outlived it/)
    chat.type('/ps')
    await chat.says(/nothing in flight/)
  })

  test('of several sessions can be cancelled one by one', async (t) => {
    const chat = await startChat(t)
    chat.type('alice: wait for ever')
    const first = await connectToDevServer(chat, 'alice')
    chat.type('bob: wait for ever')
    const second = await connectToDevServer(chat, 'bob')
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
    chat.type('/cancel carol')
    await chat.says(/carol: nothing in flight/)
  })

  test('end at their timeout', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('/timeout 4')
    chat.type('alice: hello')
    await witness.ready(TREE)
    await chat.says(/alice: turn timed out after 4s/)
    assertGone(witness)
  })

  test('of another bot can be cancelled through the registry', async (t) => {
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
  test('restarts after a crash, and its turns have ended', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('alice: hello')
    await witness.ready(TREE)
    const [{ pid }] = createSupervisor({ registryPath: chat.path }).list()
    chat.type('/crash')
    assert.equal(await chat.exit, 'SIGKILL')
    await witness.gone(20_000)
    const next = await startChat(t, { path: chat.path })
    assert.match(next.output, new RegExp(`^boot: ended (with an|what an) earlier bot( had left)?: ${pid}\n`))
    next.type('alice: are you back?')
    await next.says(/alice\| the answer is 42/)
  })

  test('ends the turns of a crashed bot when it restarts, if their keepers crashed too', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('alice: hello')
    await witness.ready(TREE)
    await killWithHelpers(chat.child.pid)
    await chat.kill()
    assertAlive(witness)
    const next = await startChat(t, { path: chat.path })
    assert.match(next.output, /^boot: ended what an earlier bot had left: \d+\n/)
    assertGone(witness)
  })

  test('exits after Ctrl-C when all its turns have ended', async (t) => {
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

  test('ends its turns and exits when its chat closes', async (t) => {
    const { witness, agent } = agentWithWitness(t)
    const chat = await startChat(t, { agent })
    chat.type('alice: hello')
    await witness.ready(TREE)
    chat.child.stdin.end()
    assert.equal(await chat.exit, 0)
    assertGone(witness)
  })
})
