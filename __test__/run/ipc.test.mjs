// Messages between bot and command over Node's IPC channel, with an owned command at the other end.
import { execFile } from 'node:child_process'
import { createSocket as createDatagramSocket } from 'node:dgram'
import diagnostics from 'node:diagnostics_channel'
import { once } from 'node:events'
import { copyFileSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import {
  environCommand,
  facts,
  output,
  record,
  same,
  sameOnPosix,
  spawn,
  spawnOwned,
} from '../fixtures/side-by-side.mjs'
import { childrenOf, until } from '../support/bots.mjs'
import { after, assert, describe, script, test } from '../support/prelude.mjs'
import {
  isLinux,
  isWindows,
  NO_DESCRIPTOR_LIMIT,
  NO_SHELL,
  notUnderWine,
  posixOnly,
  windowsCommand,
} from '../support/system.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const options = { timeout: 20_000 }
const NOT_TO_A_COMMAND = 'on Windows no server can be sent to an owned command, see docs/parity.md'
const ANSWERS = script('answers-messages.mjs')
const withChannel = (more) => ({ stdio: ['ignore', 'pipe', 'inherit', 'ipc'], ...more })
const answering = (start, more) => start(process.execPath, [ANSWERS], withChannel(more))

/**
 * Splits the log into events of the channel and of the process. Their relative order is undefined,
 * also in Node.
 */
function ordered({ log, stdout }) {
  const of = (...events) => log.filter(([event]) => events.includes(event))
  return { channel: of('message', 'disconnect'), life: of('spawn', 'error', 'exit', 'close'), stdout }
}

/** Sends all messages, and waits for one answer to each. */
function exchange(child, messages) {
  const answers = []
  for (const message of messages) child.send(message)
  return new Promise((resolve) => {
    child.on('message', (answer) => answers.push(answer) === messages.length && resolve(answers))
  })
}

describe('messages arrive', () => {
  const plain = ['text', 7, null, true, [], { a: { b: [1, 'ä\u{1f600}', null] } }, 'x'.repeat(3_000_000)]
  const rich = [
    new Map([[1, { a: 1n }]]),
    new Set(['x']),
    new Date(7),
    /x/g,
    Buffer.from('bytes'),
    { u: undefined },
    NaN,
  ]
  const sent = {
    'as JSON': [undefined, plain],
    "as JSON with serialization: 'json'": ['json', plain],
    'as structured clones': ['advanced', [...plain, ...rich]],
    'as JSON although they are not plain data': [
      undefined,
      [new Date(7), new Map([[1, 2]]), { a: undefined, b: NaN }],
    ],
  }
  for (const [how, [serialization, messages]] of Object.entries(sent)) {
    same(how, async (start) => {
      const child = answering(start, { serialization })
      const ended = record(child)
      const answers = await exchange(child, messages)
      child.send('disconnect')
      return [answers.length, answers, ordered(await ended).life]
    })
  }

  same(
    'completely if they are sent in a burst before the exit',
    async (start) => {
      const child = answering(start)
      const ended = record(child)
      child.send('burst')
      const { channel, life } = ordered(await ended)
      assert.equal(channel.length, 2002)
      return [channel.slice(-2), life]
    },
    notUnderWine('under Wine child_process itself does not get the end of such a channel'),
  )

  same('after send() has accepted them and called back', async (start) => {
    const child = answering(start)
    const ended = record(child)
    const calls = []
    const accepted = await new Promise((resolve) => {
      const wasSent = (...args) => calls.push(args) === 3 && resolve(types)
      const types = [
        child.send('a', wasSent),
        child.send('b', undefined, wasSent),
        child.send('exit', undefined, {}, wasSent),
      ].map((value) => typeof value)
    })
    return [accepted, calls, ordered(await ended)]
  })

  same('as internalMessage if their name is reserved', async (start) => {
    const child = answering(start)
    const ended = record(child)
    let internal = 0
    child.on('internalMessage', ({ cmd }) => (internal += cmd === 'NODE_mine'))
    child.send({ cmd: 'NODE_mine' })
    await exchange(child, ['ordinary'])
    child.send('disconnect')
    return [internal, ordered(await ended)]
  })
})

describe('the channel ends as in child_process:', () => {
  const ends = {
    'the command disconnects': (child) => child.send('disconnect'),
    'the command exits': (child) => child.send('exit'),
    'the command is killed': (child) => child.kill('SIGKILL'),
  }
  for (const [what, end] of Object.entries(ends)) {
    same(what, async (start) => {
      const child = answering(start)
      const ended = record(child)
      const state = () => [child.connected, typeof child.channel, child.channel === null]
      await exchange(child, ['ready'])
      const seen = [state()]
      child.on('disconnect', () => seen.push(state()))
      end(child)
      return [ordered(await ended), seen, state()]
    })
  }

  // After a disconnect by the bot, child_process does not emit close.
  same('the bot disconnects', async (start) => {
    const child = answering(start)
    const log = []
    for (const event of ['disconnect', 'exit']) child.on(event, (...args) => log.push([event, ...args]))
    await exchange(child, ['ready'])
    child.disconnect()
    const { connected, channel } = child
    await once(child, 'exit')
    return [log, connected, channel]
  })

  same('a send() after the end fails', async (start) => {
    const child = answering(start)
    const ended = record(child)
    child.send('disconnect')
    const { log } = await ended
    const [failure] = await new Promise((resolve) => child.send('too late', (...args) => resolve(args)))
    const failed = once(child, 'error')
    const seen = [child.send('too late'), facts(failure), facts((await failed)[0])]
    child.on('error', (error) => seen.push(facts(error)))
    child.disconnect()
    return [seen, log.length]
  })

  same('an invalid message does not end it', async (start) => {
    const child = answering(start)
    const ended = record(child)
    const seen = []
    for (const args of [
      [],
      [undefined],
      [Symbol('s')],
      [() => {}],
      ['x', 'not a handle'],
      ['x', {}],
      ['x', null, 7],
    ]) {
      try {
        seen.push(typeof child.send(...args))
      } catch (error) {
        seen.push(facts(error))
      }
    }
    child.send('disconnect')
    return [seen, ordered(await ended).life]
  })
})

describe('the channel', () => {
  for (const index of [0, 1, 2, 3, 5]) {
    same(`works at descriptor ${index}`, async (start) => {
      const stdio = Array(6).fill('ignore').with(index, 'ipc')
      const child = start(process.execPath, [ANSWERS], { stdio })
      const ended = record(child)
      const answers = await exchange(child, ['one', { two: 2 }])
      child.send('disconnect')
      return [answers, child.stdio, ordered(await ended).life.at(-1)]
    })
  }

  same('is named in the environment', async (start) => {
    const child = start(...environCommand(), withChannel({ env: { A: '1' }, serialization: 'advanced' }))
    const { stdout, log } = await record(child)
    const pairs = stdout.split('\0').slice(0, -1)
    if (isWindows) return [pairs.filter((pair) => !pair.startsWith('SPAWN_OWNED_RUN=')), log.length]
    return [start.name === 'spawn' ? pairs : pairs.slice(0, -1), log.length]
  })

  sameOnPosix(NOT_TO_A_COMMAND)('passes servers to the command', async (start) => {
    const child = answering(start)
    const ended = record(child)
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address()
    child.send('serve', server)
    await once(child, 'message')
    server.close()
    const client = connect(port, '127.0.0.1')
    const [text] = await once(client, 'data')
    child.send('exit')
    return [String(text), ordered(await ended)]
  })

  test('refuses to send a server on Windows', {
    ...options,
    skip: !isWindows && 'POSIX systems can send a server',
  }, async (t) => {
    const child = answering(spawnOwned)
    const ended = record(child)
    const server = createServer().listen(0, '127.0.0.1')
    t.after(() => server.close())
    await once(server, 'listening')
    const datagrams = createDatagramSocket('udp4')
    t.after(() => datagrams.close())
    // Node also accepts the internal handle of a server, and some programs send it.
    for (const handle of [server, server._handle, datagrams]) {
      assert.throws(() => child.send('serve', handle), { code: 'ERR_OWNED_SEND_HANDLE' })
    }
    assert.throws(() => child.send('serve', {}), { code: 'ERR_INVALID_HANDLE_TYPE' })
    assert.deepEqual(await exchange(child, ['still connected']), ['still connected'])
    child.send('exit')
    assert.equal((await ended).log.flat().includes('error'), false)
  })

  same('passes sockets from the command to the bot', async (start) => {
    const child = answering(start)
    const ended = record(child)
    child.send('give')
    const [port] = await once(child, 'message')
    const client = connect(port, '127.0.0.1')
    const [, connection] = await once(child, 'message')
    connection.end('from the bot')
    const [text] = await once(client, 'data')
    child.send('exit')
    const { life } = ordered(await ended)
    return [String(text), life]
  })

  const bot = (steps, held) => async (start) => {
    const child = spawn(process.execPath, [script('bot-unrefs-its-child.mjs'), start.name, ...steps])
    if (held) child.stdin.end()
    const { stdout, stderr } = await record(child)
    assert.equal(stdout.startsWith('command exited with 0'), held, stderr)
    return stdout
  }
  same('keeps the bot alive, as its command does', bot(['ipc'], true))
  same(
    'does not keep a bot alive after unref() of the command and the channel',
    bot(['ipc', 'unref', 'channel.unref'], false),
  )
  same(
    'does not keep a listening bot alive after unref() of both',
    bot(['ipc', 'listen', 'unref', 'channel.unref'], false),
  )
  same(
    'keeps the bot alive after ref() of both',
    bot(['ipc', 'unref', 'channel.unref', 'channel.ref', 'ref'], true),
  )

  // Node itself also publishes the helper process that creates the channel.
  same('does not hide the command from diagnostics_channel', async (start) => {
    const seen = []
    const listener = ({ process }) => seen.push(process)
    diagnostics.subscribe('child_process', listener)
    const child = answering(start)
    diagnostics.unsubscribe('child_process', listener)
    const ended = record(child)
    child.send('exit')
    await ended
    return seen.filter((process) => process === child).length
  })
})

describe('an owned command with a channel', () => {
  test('ends on cancel like any other command', options, async () => {
    const child = answering(spawnOwned)
    const ended = record(child)
    await exchange(child, ['ready'])
    const exit = await child.cancel()
    assert.deepEqual([exit.reason, exit.signal, exit.survivors], ['manual-cancel', 'SIGTERM', []])
    const { channel, life } = ordered(await ended)
    assert.deepEqual([channel.at(-1), life.at(-1)], [['disconnect'], ['close', null, 'SIGTERM']])
  })

  test('emits close although a descendant holds the channel', options, async () => {
    const child = spawnOwned('sh', ['-c', 'sleep 60 & exit 5'], withChannel())
    const { channel, life } = ordered(await record(child))
    assert.deepEqual([channel, life.at(-1)], [[['disconnect']], ['close', 5, null]])
  })

  test(
    'emits close although a process outside the tree holds the channel',
    posixOnly(NO_SHELL, options),
    async (t) => {
      const outsider = spawn(process.execPath, [script('holds-what-it-is-given.mjs')], withChannel())
      t.after(() => outsider.kill('SIGKILL') && once(outsider, 'exit'))
      const gives = script('gives-a-descriptor-away.mjs')
      const args = ['-c', 'exec "$0" "$1" 5 5<&3', process.execPath, gives]
      const child = spawnOwned('sh', args, { stdio: ['pipe', 'ignore', 'inherit', 'ipc'] })
      t.after(() => child.connected && child.disconnect())
      const ended = record(child)
      const [, handle] = await once(child, 'message')
      outsider.send('take this', handle)
      await once(outsider, 'message')
      child.stdin.end()
      const { channel, life } = ordered(await ended)
      assert.deepEqual([channel.at(-1), life.at(-1)], [['disconnect'], ['close', 0, null]])
      assert.equal(outsider.exitCode, null, 'the outsider still holds the channel')
    },
  )
})

// On POSIX the helper is the keeper, and keeper.test.mjs tests this.
describe('spawnOwned throws and starts nothing if the channel helper', () => {
  const rows = {
    'is missing': (helper) => rmSync(helper),
    'exits at once': (helper) => copyFileSync(windowsCommand('true'), helper),
    'is a text file': (helper) => writeFileSync(helper, 'not a program'),
  }
  const skip = !isWindows && 'on POSIX the helper is the keeper, which has its own tests'
  for (const [what, spoil] of Object.entries(rows)) {
    test(what, { ...options, skip }, async (t) => {
      const directory = mkdtempSync(join(tmpdir(), 'package-'))
      t.after(() => rmSync(directory, { recursive: true, maxRetries: 10 }))
      const native = join('native', `win32-${process.arch}`)
      for (const part of ['dist', native, 'package.json'])
        cpSync(join(root, part), join(directory, part), { recursive: true })
      spoil(join(directory, native, 'spawn-owned-keeper.exe'))
      const registry = JSON.stringify(join(directory, 'registry', 'process-registry.json'))
      const code = `process.env.SPAWN_OWNED_REGISTRY = ${registry}
        const { spawnOwned } = require(${JSON.stringify(directory)})
        try {
          spawnOwned('true', { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] })
        } catch ({ code, message }) {
          console.log(code, message)
        }
        spawnOwned('true').wait().then(({ reason }) => console.log(reason))`
      const text = await output(spawn, process.execPath, ['-e', code])
      assert.match(text, /^ERR_OWNED_KEEPER_BROKEN .*Nothing was started.*\nexit\n$/)
    })
  }
})

after(async () => {
  if (!isLinux) return
  const isZygote = (pid) =>
    existsSync(`/proc/${pid}/comm`) && readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'owned-zygote'
  // A child that has exited is a zombie until libuv waits for it.
  await until(() => childrenOf(process.pid).every(isZygote), 'no helper is left')
})

describe('a channel without a free file descriptor', () => {
  for (const free of [0, 1])
    test(`is refused with EMFILE, as in Node, and nothing starts: ${free} left`, {
      ...posixOnly(NO_DESCRIPTOR_LIMIT, options),
    }, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), 'no-descriptor-'))
      t.after(() => rmSync(folder, { recursive: true, force: true }))
      const args = [script('gets-no-descriptor.mjs'), join(folder, 'process-registry.json'), String(free)]
      const line = ['-c', 'ulimit -n 100; exec "$@"', 'sh', process.execPath, ...args]
      const { stdout } = await promisify(execFile)('sh', line)
      assert.deepEqual(JSON.parse(stdout), { code: 'EMFILE', left: [] })
    })
})
