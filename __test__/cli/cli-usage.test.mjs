// Usage errors of the command line. Each exits with 2 and one line on stderr that names flags, before
// anything is printed on stdout, started or read. The tables follow the specification, so a new
// command or option is tested without a change here.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawnOwnedCli as so } from '../support/cli.mjs'
import { describe, sources, test } from '../support/sources.mjs'

const { COMMANDS, optionsOf, parse, UsageError } = await sources('cli/command-spec', 'cli/parse')

const LONG = `${'9'.repeat(20)}d`
/** Invalid values of each kind. The first is tested in every command, the others in the parser. */
const BAD = {
  DURATION: [LONG, 'soon', '-5s', '5 m', '1e3'],
  SIZE: ['9'.repeat(30), 'much', '-1', '2P'],
  NUMBER: ['1.5', 'x', '-1', '9'.repeat(20)],
  SIGNAL: ['SIGNOPE', '0', '99', 'SIG', '-9'],
  RUN: ['a b', '.a', 'a/b', 'x'.repeat(129)],
  'KEY=VALUE': ['nonsense', '=b'],
  NAME: ['*', '**'],
  DIR: ['/nonexistent/x', process.execPath],
  PROJECT: ['/', '/nonexistent/x'],
}
/** Kinds of which every text is valid. */
const ANY = ['PATH', 'ID', 'KEY']
/** A valid value of each kind. */
const GOOD = {
  ...{ DURATION: '5s', SIZE: '1G', NUMBER: '5', SIGNAL: 'term', RUN: 'a', 'KEY=VALUE': 'a=b', NAME: 'a' },
  ...{ DIR: tmpdir(), PROJECT: tmpdir(), PATH: 'x', ID: 'x', KEY: 'x' },
}

const kindOf = ({ kind, value }) => kind ?? value
const given = ({ name, ...option }) => [`--${name}`, ...(option.value ? [GOOD[kindOf(option)]] : [])]
const withOption = (command, what) =>
  what === 'RUN' ? ['x'] : given(optionsOf(command).find(({ name }) => `--${name}` === what))

/** The arguments without which a command is invalid. */
function needed({ name, takesCommand, words: [least], oneOf }) {
  if (takesCommand) return { before: [], after: ['--', 'true'] }
  if (name === 'completion') return { before: ['bash'], after: [] }
  return { before: least > 0 || oneOf ? ['x'] : [], after: [] }
}

/** Returns the command line, with the arguments without which the command is invalid. */
const line = (command, words) => {
  const { before, after } = needed(command)
  return [command.name, ...before, ...words, ...after]
}

/** All usage errors of a command: why, and the command line. */
function usageErrors(command) {
  const { name, words, takesCommand, conflicts = [], requires = [], oneOf } = command
  const { after } = needed(command)
  const options = optionsOf(command)
  const [flag, valued] = [options.find(({ value }) => !value), options.find(({ value }) => value)]
  const single = options.find(({ value, repeatable }) => value && !repeatable)
  const most = Array.from({ length: words[1] }, () => 'x')
  return [
    ['an unknown option', line(command, ['--bogus'])],
    ['an unknown short option', line(command, ['-Z'])],
    ['a flag with a value', line(command, [`--${flag.name}=yes`])],
    ['an option without its value', [name, `--${valued.name}`]],
    ['an option with an empty value', line(command, [`--${valued.name}=`])],
    ['an option that is given twice', line(command, [...given(single), ...given(single)])],
    ...(takesCommand
      ? [
          ['no command', [name]],
          ['an empty command', [name, '--', '']],
        ]
      : [
          ['a surplus argument', [name, ...most, 'surplus']],
          ['an argument after --', [...line(command, []), '--', 'x']],
        ]),
    ...(words[0] > 0 || oneOf ? [['a missing argument', [name]]] : []),
    ...(words[1] > 0 ? [['an empty argument', [name, '']]] : []),
    ...options
      .filter((option) => BAD[kindOf(option)])
      .map((option) => [
        `an invalid --${option.name}`,
        line(command, [`--${option.name}=${BAD[kindOf(option)][0]}`]),
      ]),
    ...conflicts.map(([one, other]) => [
      `${one} with ${other}`,
      [name, ...withOption(command, one), ...withOption(command, other), ...after],
    ]),
    ...requires.map(([option, other]) => [
      `${option} without ${other}`,
      line(command, withOption(command, option)),
    ]),
  ]
}

/** What only the library calls so. `JSON` and names of signals are fine. */
const LIBRARY = /options\.|\b[a-z]+[A-Z]\w*|ERR_|Received|property '/

/** A folder with a registry that cannot be parsed: a command that reads it prints a warning. */
function brokenRegistry() {
  const folder = mkdtempSync(join(tmpdir(), 'cli-usage-'))
  const registryPath = join(folder, 'process-registry.json')
  writeFileSync(registryPath, 'nonsense')
  return { folder, registryPath }
}

async function assertUsageError(args, why) {
  const { folder, registryPath } = brokenRegistry()
  const { code, stdout, stderr } = await so(registryPath, args, { cwd: folder })
  const seen = `${why}: spawn-owned ${args.join(' ').slice(0, 200)}\n${code}\n${stdout}\n${stderr}`
  assert.equal(code, 2, seen)
  assert.equal(stdout, '', seen)
  assert.match(stderr, /^spawn-owned: [^\n]+ Try "spawn-owned [a-z -]*--help"\.\n$/, seen)
  assert.doesNotMatch(stderr, LIBRARY, seen)
  assert.deepEqual(readdirSync(folder), ['process-registry.json'], seen)
  rmSync(folder, { recursive: true })
}

describe('a usage error exits with 2 and touches nothing:', { timeout: 600_000, concurrency: 2 }, () => {
  for (const command of COMMANDS)
    test(command.name, async () => {
      for (const [why, args] of usageErrors(command)) await assertUsageError(args, why)
    })

  test('no known command', async () => {
    for (const args of [
      ['nosuch'],
      [''],
      ['--json', 'ps'],
      ['help', 'nosuch'],
      ['help', 'ps', 'surplus'],
      ['--version', 'surplus'],
      ['completion', 'tcsh'],
      ['top'],
    ])
      await assertUsageError(args, 'no known command')
  })
})

describe('the parser', () => {
  test('knows every kind of value', () => {
    for (const option of COMMANDS.flatMap(optionsOf).filter(({ value }) => value))
      assert.ok(BAD[kindOf(option)] || ANY.includes(kindOf(option)), `--${option.name} ${option.value}`)
  })

  test('names the flag and the value in each error', () => {
    for (const command of COMMANDS)
      for (const option of optionsOf(command))
        for (const bad of BAD[kindOf(option)] ?? [])
          assert.throws(
            () => parse(line(command, [`--${option.name}=${bad}`])),
            (error) => {
              assert.ok(error instanceof UsageError, error)
              assert.ok(error.message.startsWith(`--${option.name} must be `), error.message)
              assert.ok(error.message.endsWith(`, got "${bad}"`), error.message)
              assert.doesNotMatch(error.message, LIBRARY)
              return true
            },
          )
  })

  test('accepts each option with a valid value', () => {
    for (const command of COMMANDS)
      for (const option of optionsOf(command)) {
        const needs = (command.requires ?? []).filter(([needing]) => needing === `--${option.name}`)
        const extra = needs.flatMap(([, other]) => withOption(command, other))
        const conflicts = (command.conflicts ?? []).some(
          (pair) => pair.slice(0, 2).join() === `RUN,--${option.name}`,
        )
        const words = [...given(option), ...extra]
        const alone = command.name === 'kill' ? ['kill', '--orphans'] : [command.name]
        parse(conflicts ? [...alone, ...words.filter((word) => word !== '--orphans')] : line(command, words))
      }
  })

  test('reads signals as kill does', () => {
    for (const text of ['SIGTERM', 'TERM', 'term', 'sigterm', '15'])
      assert.equal(parse(['stop', 'x', '-s', text]).text('signal'), 'SIGTERM')
  })
})
