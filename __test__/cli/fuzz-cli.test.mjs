// The command line gets random words. It either does what they say, or prints an error with a hint
// and exits with 2. It never prints a stack trace or control characters, and it never ends a run
// that the words do not name. SEED=<number> repeats a failed test.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'

import { dirname } from 'node:path'
import { describe, test } from 'node:test'
import { createSupervisor } from 'spawn-owned'
import { freshRegistry } from '../support/bots.mjs'
import { spawnOwnedCli } from '../support/cli.mjs'
import { seedsFor, sequence } from '../support/random.mjs'
import { NO_SHELL, posixOnly } from '../support/system.mjs'

/** Command lines per command; set `TURNS=100` for more. */
const turns = Number(process.env.TURNS ?? 6)

const COMMON = ['--registry', '--json', '--help', '-h', '--colour', '--no-json', '--', '-', '-zz']
const FILTER = ['--session', '--scope', '--label']
/** The options of each command. Commands that run until Ctrl-C get only invalid options. */
const COMMANDS = {
  ps: FILTER,
  tree: FILTER,
  show: FILTER,
  events: ['--lines', '-n'],
  metrics: ['--label', '--format'],
  cancel: [...FILTER, '--grace', '--signal', '-s', '--all'],
  reap: ['--dry-run', '--grace', '--policy'],
  kill: ['--orphans', '--dry-run', '--older-than', '--grace', '--label'],
  top: ['--interval=0', '--interval=soon', '--nonsense'],
  watch: ['--interval=never', '--max-age=-1', '--nonsense'],
  run: [
    '--timeout',
    '-t',
    '--no-output-timeout',
    '--grace',
    '--run-id',
    '--session',
    '--label',
    '--keep',
    '--cwd',
    '--memory',
  ],
  doctor: [],
  completion: ['bash', 'zsh', 'fish'],
  help: [],
  '': [],
}
const STAYS = ['top', 'watch']

const WORDS = [
  ...[
    '',
    ' ',
    '-',
    '--',
    '---',
    '=',
    '-=',
    '--=x',
    'x',
    '0',
    '-1',
    '1e99',
    'NaN',
    '99999999999999999999',
    '1.5s',
    '5m',
  ],
  ...[
    '\x1b[2J\x1b]0;title\x07',
    'a\nb',
    'a\rb',
    '\u202eb',
    '\ud800',
    '\u0085',
    '𝒳',
    '__proto__',
    'constructor',
    'a=b=c',
    '=b',
    '*',
  ],
  ...[
    '../../..',
    '/',
    '/dev/null',
    '/nonexistent/x',
    '$(exit 9)',
    '`exit 9`',
    '%s%n',
    'x'.repeat(50_000),
    'SIGKILL',
    '9',
    'bystander ',
  ],
]

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about.
const MOVES_THE_CURSOR = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/
const STACK = /^\s+at .+:\d+:\d+|node:internal|\bError: /m
/**
 * Success, failure, usage error, no such run, and the codes of a shell for a command that cannot
 * be started.
 */
const CODES = [0, 1, 2, 3, 125, 126, 127]

function lineOf(name, random) {
  const pick = (list) => list[Math.floor(random() * list.length)]
  const words = Array.from({ length: Math.floor(random() * 5) }, () => {
    const word = random() < 0.5 ? pick([...COMMANDS[name], ...COMMON]) : pick(WORDS)
    return random() < 0.2 ? `${word}=${pick(WORDS)}` : word
  })
  if (STAYS.includes(name)) words.unshift('--nonsense')
  return (name === '' ? [pick(WORDS), ...words] : [name, ...words]).filter((word) => !word.includes('\0'))
}

describe(
  'random words cause no crash and no wrong cancel in the command',
  posixOnly(NO_SHELL, { timeout: 1_200_000, concurrency: 2 }),
  () => {
    for (const name of Object.keys(COMMANDS)) {
      test(name || '(none)', { timeout: 600_000 }, async (t) => {
        const registryPath = freshRegistry()
        const folder = dirname(registryPath)
        mkdirSync(folder, { recursive: true })
        const supervisor = createSupervisor({ registryPath })
        const bystander = supervisor.spawnOwned('cat', {
          runId: 'bystander',
          stdio: ['pipe', 'ignore', 'ignore'],
        })
        t.after(() => bystander.cancel({ graceMs: 0 }))
        for (const seed of seedsFor('cli', name)) {
          const random = sequence(seed, name)
          for (let turn = 0; turn < turns; turn++) {
            const words = lineOf(name, random)
            const said = await spawnOwnedCli(registryPath, words, { cwd: folder })
            assertWellBehaved(said, `SEED=${seed}: spawn-owned ${JSON.stringify(words).slice(0, 500)}`)
          }
          assert.equal(bystander.state, 'running', `SEED=${seed}: a command ended a run that it did not name`)
        }
        assert.deepEqual(
          supervisor.list().map(({ runId }) => runId),
          ['bystander'],
        )
      })
    }
  },
)

function assertWellBehaved({ code, stdout, stderr }, line) {
  const seen = `${line}\n${code}\n${stdout.slice(0, 2000)}\n${stderr.slice(0, 2000)}`
  assert.ok(CODES.includes(code), seen)
  assert.doesNotMatch(stderr, STACK, seen)
  assert.doesNotMatch(stderr, MOVES_THE_CURSOR, seen)
  assert.doesNotMatch(stdout, MOVES_THE_CURSOR, seen)
  if (code === 2) {
    assert.match(stderr, /^spawn-owned: .+ Try "spawn-owned .*--help"\.\n$/, seen)
    assert.equal(stdout, '', seen)
  }
  if (code === 1 || code === 3) assert.match(stdout + stderr, /\S/, seen)
}
