// Generates help and completions from the specification. Pure.

import { COMMANDS, type Command, type Option, optionsOf } from './command-spec.js'
import { definitions, type Paint, wrapped } from './text.js'

export const ABOUT =
  'Process ownership for agent bots: list runs, terminate whole trees, clean up after crashes.'

export const flagsOf = ({ name, short, value }: Option) =>
  `${short ? `-${short}, ` : ''}--${name}${value ? ` ${value}` : ''}`

const WORDS =
  'A run is a command with all processes that it starts. A bot is a program that started runs with spawn-owned. The registry is the file in which bots record their runs.'

/** Where help is printed, and the path of the man page. */
export interface HelpStyle {
  readonly paint: Paint
  readonly width: number
  readonly manual: string
}

export function overview({ paint, width, manual }: HelpStyle): string[] {
  return [
    `${paint('bold', 'Usage:')} spawn-owned COMMAND [OPTIONS]`,
    '',
    ...wrapped(ABOUT, width),
    '',
    ...wrapped(WORDS, width),
    '',
    paint('bold', 'Commands:'),
    ...definitions(
      COMMANDS.map(({ name, summary }) => [name, summary] as const),
      width,
    ),
    '',
    ...wrapped(
      'Run "spawn-owned COMMAND --help" for details, "spawn-owned --version" for the version.',
      width,
    ),
    `Manual: ${manual}`,
  ]
}

function usageLines(usage: string, paint: Paint, width: number): string[] {
  const [first = '', ...others] = wrapped(`Usage: ${usage}`, width - 2)
  return [first.replace('Usage:', paint('bold', 'Usage:')), ...others.map((line) => `  ${line}`)]
}

export function helpOf(command: Command, { paint, width, manual }: HelpStyle): string[] {
  const options = optionsOf(command).map((option) => [flagsOf(option), option.help] as const)
  return [
    ...usageLines(`spawn-owned ${command.name} ${command.usage}`.trimEnd(), paint, width),
    '',
    ...wrapped(`${command.summary}.`, width),
    ...command.about.flatMap((paragraph) => ['', ...wrapped(paragraph, width)]),
    '',
    paint('bold', 'Options:'),
    ...definitions(options, width),
    '',
    paint('bold', 'Examples:'),
    ...command.examples.map((example) => `  ${example}`),
    ...(command.json ? ['', paint('bold', 'JSON:'), ...wrapped(command.json, width, '  ')] : []),
    '',
    `Manual: ${manual}`,
  ]
}

// ---- completions --------------------------------------------------------------------------------

export const SHELLS = { bash, zsh, fish }

const names = COMMANDS.map(({ name }) => name).join(' ')
const flags = (command: Command) => optionsOf(command).map(({ name }) => `--${name}`)
/** Whether a command takes a run. Its completion then lists the runs with `ps`. */
const takesRun = ({ usage }: Command) => usage.startsWith('RUN') || usage.startsWith('[RUN]')

function bash(): string[] {
  return [
    '# bash completion for spawn-owned',
    '_spawn_owned() {',
    '  local word=$' + '{COMP_WORDS[COMP_CWORD]} command=$' + '{COMP_WORDS[1]} choices=',
    '  if [ "$COMP_CWORD" -eq 1 ]; then',
    `    choices='${names} --help --version'`,
    '  else',
    '    case $command in',
    ...COMMANDS.map((command) => {
      const runs = takesRun(command)
        ? ' $(spawn-owned ps --json 2>/dev/null | grep -o \'"runId": *"[^"]*"\' | cut -d\\" -f4)'
        : ''
      return `      ${command.name}) choices="${flags(command).join(' ')}${runs}" ;;`
    }),
    '    esac',
    '  fi',
    '  COMPREPLY=($(compgen -W "$choices" -- "$word"))',
    '}',
    'complete -o default -F _spawn_owned spawn-owned',
  ]
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`

function zsh(): string[] {
  const specs = (command: Command) =>
    optionsOf(command)
      .map(({ name, value, help }) =>
        quoted(`--${name}[${help.replace(/[[\]:]/g, '')}]${value ? `:${value}:` : ''}`),
      )
      .join(' ')
  return [
    '#compdef spawn-owned',
    '_spawn_owned() {',
    '  local -a commands',
    `  commands=(${COMMANDS.map(({ name, summary }) => quoted(`${name}:${summary}`)).join(' ')})`,
    '  if (( CURRENT == 2 )); then _describe command commands; return; fi',
    '  case $words[2] in',
    ...COMMANDS.map((command) => `    ${command.name}) _arguments ${specs(command)} '*:file:_files' ;;`),
    '  esac',
    '}',
    '_spawn_owned "$@"',
  ]
}

function fish(): string[] {
  const at = (name: string) => `__fish_seen_subcommand_from ${name}`
  return [
    '# fish completion for spawn-owned',
    `complete -c spawn-owned -n __fish_use_subcommand -f -a '${names}'`,
    ...COMMANDS.flatMap((command) =>
      optionsOf(command).map(({ name, short, value, help }) =>
        [
          `complete -c spawn-owned -n '${at(command.name)}' -l ${name}`,
          short ? `-s ${short}` : '',
          value ? '-r' : '',
          `-d ${quoted(help)}`,
        ]
          .filter(Boolean)
          .join(' '),
      ),
    ),
  ]
}
