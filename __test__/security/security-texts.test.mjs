// Text that other programs choose: names, labels, command lines. No control character of it
// reaches a terminal, and it forges no line. No value of an environment is written to a file.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { childrenOf, entriesOf, freshRegistry, keeperOf, supervise, until } from '../support/bots.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { crashed } from '../support/orphans.mjs'
import { assert, options } from '../support/prelude.mjs'
import {
  KEEPERS_ENVIRONMENT,
  linuxOnly,
  NO_PROC,
  NO_SHELL,
  posixTests,
  rootOnly,
} from '../support/system.mjs'

const { describe, test } = posixTests(NO_SHELL)

/** Clears the screen, sets the title, ends the line, reverses the text, and forges log lines. */
const HOSTILE =
  '\x1b[2J\x1b]0;mine\x07\x9b2J\r\n2026-01-01T00:00:00.000Z KILLED pid=1 cmd="x"\u2028\u202eevil\u2066"} 1\nrun_live 99\n\\'

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about.
const MORE_THAN_TEXT = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/

/** The texts of an entry that a hostile program can influence. */
const hostile = {
  sessionId: HOSTILE,
  backendId: HOSTILE,
  scopeKey: HOSTILE,
  commandPreview: HOSTILE,
  labels: { [HOSTILE]: HOSTILE, agent: HOSTILE },
}

async function assertPlain(path, commands) {
  for (const words of commands) {
    const { stdout, stderr } = await spawnOwnedCli(path, words, { env: { FORCE_COLOR: '0' } })
    assert.ok(stdout.length > 0, words.join(' '))
    assert.doesNotMatch(stdout + stderr, MORE_THAN_TEXT, `${words.join(' ')}\n${JSON.stringify(stdout)}`)
    assert.doesNotMatch(stdout, /^run_live 99/m)
    assert.doesNotMatch(stdout, /^2026-01-01T/m, words.join(' '))
  }
}

describe('the command line prints no control character', { timeout: 600_000 }, () => {
  test('of a live run', options, async (t) => {
    const path = freshRegistry()
    const run = supervise(path).spawnOwned('cat', [HOSTILE.replaceAll('\0', ''), '-'], {
      ...hostile,
      runId: 'hostile',
      argv0: HOSTILE,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    t.after(() => run.cancel({ graceMs: 0 }))
    await assertPlain(path, [['ps'], ['tree'], ['show', 'hostile'], ['metrics'], ['reap'], ['doctor']])
    await assertPlain(path, [['cancel', 'hostile']])
  })

  test('of entries that another program has written', options, async (t) => {
    const { record } = await crashed(t)
    const exit = { atMs: 1, reason: HOSTILE, ending: HOSTILE, exitCode: 0, signal: null, survivors: 1 }
    const stranger = {
      ...record,
      ...hostile,
      runId: `x${HOSTILE}`,
      exit,
      cgroup: `/${HOSTILE}`,
      job: HOSTILE,
    }
    const path = freshRegistry([{ ...stranger, keeper: { ...record.keeper, address: HOSTILE } }])
    await assertPlain(path, [['ps'], ['tree'], ['show', 'x'], ['metrics'], ['doctor'], ['reap', '--dry-run']])
    await assertPlain(path, [['reap'], ['events']])
  })
})

test('metricsText() contains no label that a caller chooses', options, async () => {
  const supervisor = supervise(freshRegistry())
  const run = supervisor.spawnOwned('cat', { ...hostile, stdio: ['pipe', 'ignore', 'ignore'] })
  await run.cancel({ graceMs: 0 })
  const text = supervisor.metricsText()
  for (const line of text.trimEnd().split('\n'))
    assert.match(line, /^(# (HELP|TYPE) |\w+(\{\w+="[\w-]+"\})? \d+$)/)
  assert.deepEqual(supervisor.list(), [])
})

test(
  'no value of an environment is written to a file or passed to the keeper',
  rootOnly(KEEPERS_ENVIRONMENT, linuxOnly(NO_PROC, options)),
  async (t) => {
    const path = freshRegistry()
    const secret = `secret-${process.pid}-of-the-test`
    process.env.BOTS_SECRET = secret
    t.after(() => delete process.env.BOTS_SECRET)
    const supervisor = supervise(path)
    for (const env of [undefined, { ...process.env, RUNS_SECRET: secret }]) {
      const run = supervisor.spawnOwned('cat', { env, stdio: ['pipe', 'ignore', 'ignore'] })
      t.after(() => run.cancel({ graceMs: 0 }))
      const [record] = supervisor.list({ runId: run.runId })
      const about = (pid, file) => readFileSync(`/proc/${pid}/${file}`, 'utf8')
      // During `exec` the process has its new name before it has its new environment.
      const hasSecret = () => about(run.pid, 'comm') === 'cat\n' && about(run.pid, 'environ').includes(secret)
      await until(hasSecret, 'the command has the secret in its environment')
      for (const pid of [keeperOf(record), ...childrenOf(process.pid)].filter((pid) => pid !== run.pid))
        for (const file of ['environ', 'cmdline'])
          assert.ok(!about(pid, file).includes(secret), `${pid} ${file}`)
      await until(() => entriesOf(path).some(({ runId }) => runId === run.runId), 'the file contains the run')
      // Skip the journal: it exists for some milliseconds and can vanish meanwhile.
      for (const name of readdirSync(dirname(path)).filter((name) => !name.includes('.journal')))
        assert.ok(!readFileSync(join(dirname(path), name), 'utf8').includes(secret), name)
    }
  },
)
