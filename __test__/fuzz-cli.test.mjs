// The command line is given any words: it says in a sentence what it did not understand, with a hint and exit code 2, or does what was
// asked; never a stack trace, nothing that moves a cursor, and nobody is ended who was not named. SEED=<number> repeats a failed run's
// choices.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'

import { dirname } from 'node:path'
import { describe, test } from 'node:test'
import { createSupervisor } from 'spawn-owned'
import { freshRegistry } from './support/bots.mjs'
import { spawnOwnedCli } from './support/cli.mjs'
import { randomFor, seed } from './support/random.mjs'
import { NO_SHELL, posixOnly } from './support/system.mjs'

/** How many command lines for each command; `TURNS=100` for more. */
const turns = Number(process.env.TURNS ?? 6)

const COMMON = ['--registry', '--json', '--help', '-h', '--colour', '--no-json', '--', '-', '-zz']
const FILTER = ['--session', '--scope', '--label']
/** What each takes. Of those that stay until they are told to go, only what makes no sense is said. */
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
/** It worked, it did not, it was not understood, there is nothing of that name; and what a shell says of a command that it cannot run. */
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

describe('any words, said to', posixOnly(NO_SHELL, { timeout: 1_200_000, concurrency: 2 }), () => {
  for (const name of Object.keys(COMMANDS)) {
    test(name || 'no command', { timeout: 600_000 }, async (t) => {
      const registryPath = freshRegistry()
      const folder = dirname(registryPath)
      mkdirSync(folder, { recursive: true })
      const supervisor = createSupervisor({ registryPath })
      const bystander = supervisor.spawnOwned('cat', {
        runId: 'bystander',
        stdio: ['pipe', 'ignore', 'ignore'],
      })
      t.after(() => bystander.cancel({ graceMs: 0 }))
      const random = randomFor(name)
      for (let turn = 0; turn < turns; turn++) {
        const words = lineOf(name, random)
        const said = await spawnOwnedCli(registryPath, words, { cwd: folder })
        judge(said, `SEED=${seed}: spawn-owned ${JSON.stringify(words).slice(0, 500)}`)
      }
      assert.equal(bystander.state, 'running', `SEED=${seed}: nobody has named it`)
      assert.deepEqual(
        supervisor.list().map(({ runId }) => runId),
        ['bystander'],
      )
    })
  }
})

function judge({ code, stdout, stderr }, line) {
  const seen = `${line}\n${code}\n${stdout.slice(0, 2000)}\n${stderr.slice(0, 2000)}`
  assert.ok(CODES.includes(code), seen)
  assert.doesNotMatch(stderr, STACK, seen)
  assert.doesNotMatch(stderr, MOVES_THE_CURSOR, seen)
  assert.doesNotMatch(stdout, MOVES_THE_CURSOR, seen)
  if (code === 2 && stderr) assert.match(stderr, /^spawn-owned: .+ Try "spawn-owned .*--help"\.\n$/, seen)
  if (code === 1 || code === 3) assert.match(stdout + stderr, /\S/, seen)
}
