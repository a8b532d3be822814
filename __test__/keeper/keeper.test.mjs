// Keeper and zygote: the errors when they cannot be used, and how little other processes see of
// them.
// (When a keeper is killed: keeper-killed.test.mjs.)
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { output, record, spawn, spawnOwned } from '../fixtures/side-by-side.mjs'
import { assert, openWitness, program, READY, script } from '../support/prelude.mjs'
import {
  KEEPERS_ENVIRONMENT,
  linuxTests,
  NO_GROUPS,
  NO_PROC,
  NOT_NODES,
  notInDeno,
  rootOnly,
} from '../support/system.mjs'

const { describe, test } = linuxTests(NO_PROC)

const options = { timeout: 20_000 }
const root = fileURLToPath(new URL('../..', import.meta.url))
const workingKeeper = join(root, 'native', 'spawn-owned-keeper')
const asRoot = process.getuid?.() === 0 ? false : 'only root may become another user'

/** A copy of the package in a directory that each user may enter. */
function copyOfPackage(t) {
  const directory = mkdtempSync(join(tmpdir(), 'package-'))
  t.after(() => rmSync(directory, { recursive: true, maxRetries: 10 }))
  for (const part of ['dist', 'native', 'package.json'])
    cpSync(join(root, part), join(directory, part), { recursive: true })
  chmodSync(directory, 0o755)
  return directory
}

/** The text of a file in /proc. Empty if its thread or process has ended since it was listed. */
function textOf(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

const commandLine = (pid) => textOf(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim()
const field = (path, name) => new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(textOf(path))?.[1]
const parentOf = (pid) => Number(field(`/proc/${pid}/status`, 'PPid'))

function childrenOf(pid) {
  const threads = readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}/children`)
  return threads.flatMap((file) => textOf(file).split(' ').filter(Boolean)).map(Number)
}

const zygotes = () => childrenOf(process.pid).filter((pid) => commandLine(pid).includes('zygote'))

describe('spawnOwned throws and starts nothing if the keeper cannot be used:', { concurrency: true }, () => {
  const protocol = /protocol (\d+)/.exec(execFileSync(workingKeeper, ['--version'], { encoding: 'utf8' }))[1]
  const octal = Number(protocol).toString(8)
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  const replace = (content) => (keeper) => {
    rmSync(keeper)
    writeFileSync(keeper, content, { mode: 0o755 })
  }
  const unavailable = 'ERR_OWNED_KEEPER_UNAVAILABLE'
  const broken = 'ERR_OWNED_KEEPER_BROKEN'
  const rows = [
    ['it is missing', (keeper) => rmSync(keeper), unavailable, /missing.*Reinstall/],
    [
      'it is not executable',
      (keeper) => chmodSync(keeper, 0o644),
      unavailable,
      /permission denied.*chmod \+x/,
    ],
    ['it is a text file', replace('not a program\n'), unavailable, /not a program.*Reinstall/],
    ['it is a directory', (keeper) => rmSync(keeper) ?? mkdirSync(keeper), unavailable, /permission denied/],
    ['its loader is missing', linkedWithoutLoader, unavailable, /loader.*Reinstall/],
    ['it exits at once', replace('#!/bin/sh\nexit 0\n'), broken, /ended at once.*reinstall/],
    ['it crashes', replace('#!/bin/sh\nkill -SEGV $$\n'), broken, /ended at once/],
    ['it is another program', replace('#!/bin/sh\necho hello >&0\n'), broken, /it is no keeper/],
    [
      'it has another protocol version',
      replace("#!/bin/sh\nprintf 'SO\\377Z' >&0\n"),
      'ERR_OWNED_VERSION_MISMATCH',
      /protocol 255.*same version/,
    ],
    [
      'it exits after its greeting',
      replace(`#!/bin/sh\nprintf 'SO\\${octal}Z${version}' >&0\n`),
      broken,
      /did not start properly/,
    ],
    [
      'it never answers',
      replace('#!/bin/sh\nexec cat >/dev/null\n'),
      broken,
      /did not answer within \d+ s/,
      'once',
    ],
  ]
  for (const [what, damage, code, message, once = ''] of rows) {
    test(what, { timeout: 40_000 }, async (t) => {
      const directory = copyOfPackage(t)
      const keeper = join(directory, 'native', 'spawn-owned-keeper')
      damage(keeper)
      const witness = openWitness(t)
      const bot = script('bot-with-a-broken-keeper.mjs')
      const args = [bot, directory, workingKeeper, program('stays'), witness.path, once]
      const { errors, plain, afterwards } = JSON.parse(await output(spawn, process.execPath, args))
      for (const error of errors) {
        assert.equal(error.code, code, `${error.code}: ${error.message}`)
        assert.match(error.message, message)
        assert.match(error.message, /Nothing was started/)
        assert.ok(error.message.includes(keeper), `the message does not name the file: ${error.message}`)
      }
      witness.release()
      assert.deepEqual([witness.count(READY), witness.isGone()], [0, true])
      assert.deepEqual([plain, afterwards], ['works\n', 'exit'])
    })
  }

  function linkedWithoutLoader(keeper) {
    rmSync(keeper)
    const args = ['-x', 'c', '-', '-o', keeper, '-Wl,--dynamic-linker=/nonexistent/ld.so']
    execFileSync('cc', args, { input: 'int main(void) { return 0; }' })
  }

  test('the addon is missing', options, async (t) => {
    const directory = copyOfPackage(t)
    rmSync(join(directory, 'native', 'spawn-owned.node'))
    const code = `try { require(${JSON.stringify(directory)}) } catch (e) { console.log(e.code, e.message) }`
    assert.match(
      await output(spawn, process.execPath, ['-e', code]),
      /^ERR_OWNED_NOT_INSTALLED .*Install @spawn-owned/,
    )
  })
})

describe('a zygote', () => {
  test('that is killed is replaced, and its runs go on', options, async () => {
    const child = spawnOwned('cat')
    const ended = record(child)
    for (let round = 0; round < 10; round++) {
      for (const pid of zygotes()) process.kill(pid, 'SIGKILL')
      assert.equal((await spawnOwned('sh', ['-c', 'exit 3']).wait()).exitCode, 3, `round ${round}`)
    }
    child.stdin.end('still here')
    assert.equal((await ended).stdout, 'still here')
    assert.equal((await child.wait()).reason, 'exit')
    // The last killed zygote has left a stock of keepers, which the bot uses up first.
    for (let i = 0; i < 3; i++) await spawnOwned('true').wait()
    const children = () => childrenOf(process.pid)
    await until(
      () => children().length === 1,
      () => `there are ${children().length} children: ${children().map(commandLine)}`,
    )
  })

  test('exists once for each bot and shows the PID of the bot', options, async () => {
    await spawnOwned('true').wait()
    const lines = zygotes().map(commandLine)
    assert.deepEqual(lines, [`spawn-owned-keeper zygote of ${process.pid}`])
  })
})

/** Polls until `reached()` is true: there is no event for it. */
async function until(reached, otherwise) {
  for (const deadline = performance.now() + 30_000; !reached(); await delay(2)) {
    assert.ok(performance.now() < deadline, otherwise())
  }
}

describe('a keeper', () => {
  /**
   * The command line and the name of a keeper. They are read after the root's exit was reported,
   * because the keeper has set them by then.
   */
  async function title(t, more, args = []) {
    const witness = openWitness(t)
    const child = spawnOwned(program('half-setsid'), [witness.path, ...args], {
      onLeaderExit: 'keep',
      ...more,
    })
    child.stdin.end()
    await once(child, 'exit')
    const keeper = parentOf(child.pid)
    const seen = [commandLine(keeper), readFileSync(`/proc/${keeper}/comm`, 'utf8').trim()]
    await child.cancel()
    return seen
  }

  test(
    'shows the run id and no text of the command, so pkill -f with the command does not match it',
    options,
    async (t) => {
      const [line, name] = await title(t, { runId: 'visible-run', commandPreview: 'next dev' }, ['next dev'])
      assert.equal(line, 'spawn-owned-keeper visible-run')
      assert.equal(name, 'owned-keeper')
    },
  )

  test('sleeps while nothing happens, as do its zygote and the thread of the addon', options, async (t) => {
    const child = spawnOwned('cat')
    t.after(() => child.stdin.destroy())
    await spawnOwned('true').wait()
    const threads = readdirSync('/proc/self/task').map((thread) => `/proc/self/task/${thread}/status`)
    const ours = threads.filter((file) => field(file, 'Name') === 'spawn-owned')
    assert.equal(ours.length, 1)
    const watched = [...zygotes(), parentOf(child.pid)].map((pid) => `/proc/${pid}/status`).concat(ours)
    const switches = () => watched.map((file) => field(file, 'voluntary_ctxt_switches'))
    const windows = []
    for (let round = 0; round < 3; round++) {
      const before = switches()
      // One measurement. The first can still see the zygote fill up its stock of keepers.
      await delay(300)
      windows.push(switches().every((count, index) => count === before[index]))
    }
    assert.ok(windows.includes(true), 'a helper wakes up in each measurement')
  })
})

describe('no helper is left after a bot', () => {
  /** The PIDs with this cookie in their environment. Helpers get only the cookie of their bot. */
  function carriers(cookie) {
    const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
    return pids.filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(`SPAWN_OWNED_RUN=${cookie}`)
      } catch {
        return false
      }
    })
  }
  const endings = { exits: (bot) => bot.stdin.end(), 'is killed': (bot) => bot.kill('SIGKILL') }
  for (const [what, end] of Object.entries(endings)) {
    test(what, rootOnly(KEEPERS_ENVIRONMENT, options), async () => {
      const cookie = `helpers-of-a-bot-that-${what.replace(' ', '-')}-${process.pid}`
      const env = { ...process.env, SPAWN_OWNED_RUN: cookie }
      const bot = spawn(process.execPath, [script('bot-with-runs.mjs')], { env })
      await once(bot.stdout, 'data')
      assert.ok(carriers(cookie).length >= 5, 'the bot, its zygote and three keepers have the cookie')
      end(bot)
      await once(bot, 'exit')
      await until(
        () => carriers(cookie).length === 0,
        () => `still alive: ${carriers(cookie)}`,
      )
    })
  }
})

describe('commands inherit what the bot has changed since its first command:', () => {
  const limits = [
    'nofile=700:900',
    'core=1000:2000',
    'fsize=1000000:2000000',
    'stack=4000000',
    'sigpending=3000',
  ]
  const more = [
    'nproc=5000',
    'memlock=60000',
    'rss=1000000',
    'msgqueue=1000',
    'rtprio=0',
    'locks=99',
    'rttime=999999',
  ]
  const lower = [...limits, ...more].map((limit) => `--${limit}`).join(' ')
  const missing = (tool) => {
    try {
      return execFileSync(tool, ['--version']) && false
    } catch {
      return `${tool} is not installed`
    }
  }
  const hasOneProcessor = availableParallelism() < 2 && 'there is only one processor'
  const changes = [
    ['its umask', false],
    ['its limits', missing('prlimit'), lower],
    ['its priority', false],
    ['its processors', hasOneProcessor || missing('taskset')],
    ['its place in the queue for the OOM killer', false],
    ['its groups', asRoot],
    ['its group', asRoot],
    ['its user', asRoot],
    ['its effective user', asRoot],
    ['its user, in a directory only root may enter', asRoot, 'private'],
  ]
  const LACKING_IN_DENO = {
    'its groups': NO_GROUPS,
    'its user, in a directory only root may enter': NOT_NODES,
  }
  for (const [what, skip, argument = ''] of changes) {
    test(what, notInDeno(LACKING_IN_DENO[what], { ...options, skip }), async (t) => {
      const directory = copyOfPackage(t)
      const extra = argument === 'private' ? join(directory, 'private') : argument
      if (argument === 'private') mkdirSync(extra, { mode: 0o700 })
      const args = [script('bot-that-changes.mjs'), directory, what, extra]
      const { before, plain, owned } = JSON.parse(await output(spawn, process.execPath, args))
      assert.notDeepEqual(plain, before, 'the bot has changed it')
      assert.deepEqual(owned, plain)
    })
  }
})
