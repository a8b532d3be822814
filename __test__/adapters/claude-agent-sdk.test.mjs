// spawn-owned/claude-agent-sdk: the real SDK's query(), with a stand-in for the claude executable.
// The processes of the agent leave its session, as the tools of Claude Code do.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { createSpawner, spawnClaudeCodeProcess } from 'spawn-owned/claude-agent-sdk'
import { importPeer } from '../peers/index.mjs'
import { assertAlive, assertGone, freshRegistry, supervise } from '../support/bots.mjs'
import { assert, FOR_EVER, openWitness, program } from '../support/prelude.mjs'
import { standIn } from '../support/stand-ins.mjs'
import { isWindows, NO_SESSIONS, posixTests } from '../support/system.mjs'

const { describe, test: anyTest } = posixTests(NO_SESSIONS)
const { query } = isWindows ? {} : await importPeer('@anthropic-ai/claude-agent-sdk')
const peer = (name) => fileURLToPath(new URL(`../peers/${name}`, import.meta.url))

const options = { timeout: 300_000 }
/** Shorter than the time limit after which the fixtures end themselves. */
const test = (name, body) => anyTest(name, { timeout: 45_000 }, body)
const GONE_WITHIN_MS = 30_000

/** Starts a query whose agent is that stand-in. `exit` is the run's wait(). */
function ask(prompt, { env }, { spawner = {}, ...more } = {}) {
  const run = deferred()
  const messages = query({
    prompt,
    options: {
      env,
      pathToClaudeCodeExecutable: peer('stand-in-claude.mjs'),
      spawnClaudeCodeProcess: createSpawner({ graceMs: FOR_EVER, ...spawner, onRun: run.resolve }),
      ...more,
    },
  })
  return { messages, run: run.promise, exit: run.promise.then((it) => it.wait()) }
}

function deferred() {
  const it = {}
  it.promise = new Promise((resolve, reject) => Object.assign(it, { resolve, reject }))
  return it
}

/** Reads up to the first message of this type. */
async function next(messages, type) {
  for (;;) {
    const { done, value } = await messages.next()
    assert.ok(!done, `the agent ended without a message of type ${type}`)
    if (value.type === type) return value
  }
}

async function all(messages) {
  const types = []
  for await (const { type } of messages) types.push(type)
  return types
}

const said = (content) => ({ type: 'user', message: { role: 'user', content }, parent_tool_use_id: null })

describe('a turn', options, () => {
  test('that completes has the usual messages, and its run has exited when the query ends', async (t) => {
    const agent = standIn(t)
    const path = freshRegistry()
    const supervisor = supervise(path)
    const stderrTexts = []
    const spawner = {
      supervisor,
      sessionId: 's',
      labels: { agent: 'claude' },
      stderr: (it) => stderrTexts.push(it),
    }
    const { messages, run, exit } = ask('hello', agent, { spawner })
    await next(messages, 'system')
    const [{ pid, sessionId, labels }] = supervisor.list()
    assert.deepEqual([pid, sessionId, labels], [(await run).pid, 's', { agent: 'claude' }])
    assert.deepEqual(await all(messages), ['assistant', 'result'])
    assert.equal((await run).state, 'exited')
    agent.assertAllGone()
    const { reason, exitCode, escaped } = await exit
    assert.deepEqual([reason, exitCode, escaped], ['exit', 0, []])
    assert.equal(stderrTexts.join(''), 'a word of the stand-in’s\n')
  })

  test('that leaves tools running has ended them when the query ends', async (t) => {
    const agent = standIn(t)
    const prompts = new PassThrough({ objectMode: true })
    const { messages, run, exit } = ask(prompts, agent)
    prompts.write(said('tools'))
    await next(messages, 'result')
    await agent.toolsRun()
    prompts.end()
    await all(messages)
    assert.equal((await run).state, 'exited')
    agent.assertAllGone()
    const { reason, exitCode, escaped } = await exit
    assert.deepEqual([reason, exitCode, escaped.length], ['ownership-escape', 0, 3])
  })

  test('with the SDK’s own spawn leaves the tools running', async (t) => {
    const agent = standIn(t)
    const prompts = new PassThrough({ objectMode: true })
    const { messages } = ask(prompts, agent, { spawnClaudeCodeProcess: undefined })
    prompts.write(said('tools'))
    await next(messages, 'result')
    await agent.toolsRun()
    prompts.end()
    await all(messages)
    assertGone(agent.agent)
    assertAlive(agent.tools)
  })

  test('that is interrupted keeps its agent and tools, which answer the next prompt', async (t) => {
    const agent = standIn(t)
    const prompts = new PassThrough({ objectMode: true })
    const { messages, run, exit } = ask(prompts, agent)
    prompts.write(said('work'))
    await next(messages, 'assistant')
    await agent.toolsRun()
    await messages.interrupt()
    assert.equal((await next(messages, 'result')).subtype, 'error_during_execution')
    prompts.write(said('hello'))
    assert.equal((await next(messages, 'result')).result, 'hello')
    assert.equal((await run).state, 'running')
    assertAlive(agent.tools)
    messages.close()
    await exit
    agent.assertAllGone()
  })

  test('whose agent crashes rejects with the SDK’s error, and no process is left', async (t) => {
    const agent = standIn(t)
    const { messages, exit } = ask('crash', agent)
    await assert.rejects(all(messages), /exited with code 3/)
    agent.assertAllGone()
    assert.deepEqual([(await exit).reason, (await exit).exitCode], ['exit', 3])
  })

  test('that exceeds its timeout ends with its whole tree, for the reason overall-timeout', async (t) => {
    const agent = standIn(t)
    const { messages, exit } = ask('work', agent, { spawner: { timeoutMs: 3000 } })
    await assert.rejects(all(messages), /terminated by signal SIGTERM/)
    agent.assertAllGone()
    assert.deepEqual(
      [(await exit).reason, (await exit).message],
      ['overall-timeout', 'turn timed out after 3s'],
    )
  })

  test('that cannot be started rejects with the missing path, and there is no run', async () => {
    const run = deferred()
    const missing = '/no/such/claude'
    const spawner = createSpawner({ onRun: run.resolve })
    const with_ = { pathToClaudeCodeExecutable: missing, spawnClaudeCodeProcess: spawner }
    await assert.rejects(all(query({ prompt: 'hello', options: with_ })), /not found at \/no\/such\/claude/)
    const { reason, message } = await (await run.promise).wait()
    assert.deepEqual([reason, message], ['spawn-error', 'spawn /no/such/claude ENOENT'])
  })
})

describe('an abort', options, () => {
  /** Starts a turn and waits until the agent works and its tools run. */
  async function working(t, more, environment) {
    const agent = standIn(t, environment)
    const controller = new AbortController()
    const spawner = more?.(controller)
    const query = ask('work', agent, { spawner, abortController: controller })
    await next(query.messages, 'assistant')
    await agent.toolsRun()
    return { agent, controller, ...query }
  }
  const isAbort = (error) => error.name === 'AbortError' || /aborted/.test(error.message)

  test('ends the whole tree at once if the spawner has its signal', async (t) => {
    const { agent, controller, messages, exit } = await working(t, ({ signal }) => ({ signal }))
    controller.abort()
    await assert.rejects(all(messages), isAbort)
    const { reason, survivors } = await exit
    agent.assertAllGone()
    assert.deepEqual([reason, survivors], ['manual-cancel', []])
  })

  test('ends the tools that are left when the agent exits at the SDK’s request', async (t) => {
    const { agent, controller, messages, exit } = await working(t)
    controller.abort()
    await assert.rejects(all(messages), isAbort)
    const { reason, exitCode } = await exit
    agent.assertAllGone()
    assert.deepEqual([reason, exitCode], ['ownership-escape', 0])
  })

  test('ends an agent that does not exit within the SDK’s time limit', async (t) => {
    const { agent, controller, messages, exit } = await working(t, undefined, { STAND_IN_STAYS: '1' })
    controller.abort()
    await assert.rejects(all(messages), isAbort)
    const { reason, signal } = await exit
    agent.assertAllGone()
    assert.deepEqual([reason, signal], ['manual-cancel', 'SIGTERM'])
  })

  test('with the SDK’s own spawn ends only the agent', async (t) => {
    const agent = standIn(t)
    const abortController = new AbortController()
    const { messages } = ask('work', agent, { abortController, spawnClaudeCodeProcess: undefined })
    await next(messages, 'assistant')
    await agent.toolsRun()
    abortController.abort()
    await assert.rejects(all(messages), isAbort)
    await agent.agent.gone(GONE_WITHIN_MS)
    assertAlive(agent.tools)
  })
})

describe('a bot that is SIGKILLed', options, () => {
  async function killBot(t, how) {
    const agent = standIn(t)
    const bot = spawn(process.execPath, [peer('agent-bot.mjs'), how, JSON.stringify(agent.env)], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() },
    })
    t.after(() => bot.kill('SIGKILL'))
    await agent.toolsRun()
    bot.kill('SIGKILL')
    await once(bot, 'exit')
    await agent.agent.gone(GONE_WITHIN_MS)
    return agent
  }

  test('leaves no process of its agent', async (t) => {
    const { tools } = await killBot(t, 'owned')
    await tools.gone(GONE_WITHIN_MS)
  })

  test('with the SDK’s own spawn leaves the tools', async (t) => {
    const { tools } = await killBot(t, 'stock')
    assertAlive(tools)
  })
})

describe('the process that the SDK gets', options, () => {
  /** Calls the spawner as the SDK does. */
  function start(t, line, spawner = spawnClaudeCodeProcess) {
    const { signal } = new AbortController()
    const agent = spawner({ command: 'sh', args: ['-c', line], env: process.env, signal })
    t.after(() => agent.run.cancel({ signal: 'SIGKILL' }))
    return agent
  }

  test('has an exit code only when no process of the tree is left', async (t) => {
    const witness = openWitness(t)
    const agent = start(
      t,
      `"${program('ignores-sigterm')}" "${witness.path}" & read -r _; exit 5`,
      createSpawner({ graceMs: FOR_EVER }),
    )
    await witness.ready(2)
    agent.stdin.write('leave\n')
    await once(agent.run, 'exit')
    assert.deepEqual([agent.run.exitCode, agent.exitCode, agent.killed], [5, null, false])
    const exit = once(agent, 'exit')
    assert.equal(agent.kill('SIGKILL'), true)
    assert.deepEqual(await exit, [5, null])
    assertGone(witness)
    assert.deepEqual([agent.exitCode, agent.signalCode, agent.killed], [5, null, true])
    assert.equal(agent.kill('SIGTERM'), false)
  })

  test('passes other signals only to the agent', async (t) => {
    const agent = start(t, 'trap "echo interrupted; exit 0" INT; echo up; while :; do sleep 0.01; done')
    const [up] = await once(agent.stdout, 'data')
    assert.equal(String(up), 'up\n')
    assert.equal(agent.kill('SIGINT'), true)
    assert.equal(agent.killed, false)
    assert.equal(String((await once(agent.stdout, 'data'))[0]), 'interrupted\n')
    assert.deepEqual(await once(agent, 'exit'), [0, null])
  })

  test('emits an error and no exit if it could not be started', async (t) => {
    const agent = start(t, '', (options) => spawnClaudeCodeProcess({ ...options, command: '/no/such/agent' }))
    agent.on('exit', () => assert.fail('it never ran'))
    const [error] = await once(agent, 'error')
    assert.deepEqual([error.code, error.syscall], ['ENOENT', 'spawn /no/such/agent'])
    await agent.run.wait()
  })

  test('ends at once if the signal was aborted before the start', async (t) => {
    const spawner = createSpawner({ signal: AbortSignal.abort() })
    const agent = start(t, 'exec sleep 1000', spawner)
    assert.deepEqual(await once(agent, 'exit'), [null, 'SIGTERM'])
    assert.equal((await agent.run.wait()).reason, 'manual-cancel')
  })

  test('is ended if onRun throws, and is not started if onRun is not a function', async (t) => {
    let run
    const onRun = (it) => {
      run = it
      throw new Error('the bot has a bug')
    }
    assert.throws(() => start(t, 'exec sleep 1000', createSpawner({ onRun })), /the bot has a bug/)
    assert.equal((await run.wait()).signal, 'SIGKILL')
    for (const name of ['onRun', 'stderr'])
      assert.throws(() => createSpawner({ [name]: 'inherit' }), { code: 'ERR_INVALID_ARG_TYPE' })
  })
})
