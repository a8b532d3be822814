// Generates the man page from the specification. Only the build uses it. Pure.

import { COMMANDS, COMMON, type Option } from './command-spec.js'
import { ABOUT, flagsOf } from './help.js'

export const EXIT_CODES: readonly (readonly [code: string, meaning: string])[] = [
  ['0', 'Success. run: the command exited with 0.'],
  ['1', 'An operation failed. For example, a process could not be terminated.'],
  ['2', 'The command line is invalid. Nothing was read or started.'],
  ['3', 'No run matches the selection, or several runs match RUN.'],
  ['4', 'The command could not read all of the registry. More runs may exist.'],
  ['124', 'run: a timeout ended the command.'],
  ['125', 'run: spawn-owned could not start an owned run. The command was not started.'],
  ['126, 127', 'run: the command could not be executed (126) or was not found (127).'],
  ['128 + n', 'run: signal n ended the command. 130 after Ctrl-C.'],
]

const TERMS: readonly (readonly [name: string, text: string])[] = [
  ['run', 'A command with all processes that it starts. Its run id is a UUID, unless the bot chose one.'],
  ['bot', 'The program that started a run: its owner.'],
  ['registry', 'The file in which bots record their runs, so that other processes find them.'],
  ['keeper', 'The helper process of a run. It terminates the run if the bot dies.'],
  ['grace', 'The time that a run gets between the first signal and SIGKILL.'],
  ['session, label', 'Texts that the bot gave to a run, to select it.'],
  ['scope', 'A key of which one run at a time should be alive. A new run can replace the earlier one.'],
  ['orphan', 'A run whose bot is gone.'],
  ['suspect', 'A process that may be an orphan, but is not in the registry.'],
  [
    'lease',
    'The time until which a bot owns its runs, even if its process cannot be seen. The bot renews it.',
  ],
  ['start token', 'Identifies a process. No later process has it, even with the same PID.'],
]

/** The names that `json` in command-spec.ts uses. */
export const JSON_FIELDS: readonly (readonly [name: string, text: string])[] = [
  [
    'RUN',
    'A live run: every field of its registry entry (the type RunRecord), owner (alive, dead or unknown), processes, cpuMs, rssBytes, and members: [{pid, ppid, startToken, command, ageMs, cpuMs, rssBytes, escaped}].',
  ],
  ['ENDED', 'An ended run: the fields of the type EndedRun. "inspect" adds state: "exited".'],
  [
    'DECISION',
    '{type: "orphan", at, what, pid, command, age, status, reason}; what is DETECTED, KILLED, SKIPPED or FAILED.',
  ],
  [
    'CHANGE',
    '{type: "run", at, what, runId, pid, state, sessionId, commandPreview}; what is appeared, the new state, adopted or gone. An object with gone also has reason, exitCode and signal.',
  ],
  [
    'CancelResult, ReapReport, OrphanReport, OrphanEvent, RunExit, RunRecord, EndedRun',
    'Types of the file index.d.ts in the package. It explains each field.',
  ],
  [
    'registryProblem',
    '{kind, message, path}. Every object has it if the registry could not be read completely; the exit status is then 4.',
  ],
]

const escaped = (text: string) =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/, '\\&$1')

export function manPage(version: string): string[] {
  const option = (option: Option) => ['.TP', `.B ${escaped(flagsOf(option))}`, escaped(option.help)]
  return [
    `.TH SPAWN\\-OWNED 1 "" "spawn-owned ${version}" "User Commands"`,
    '.SH NAME',
    'spawn\\-owned \\- list, terminate and clean up the processes that agent bots started',
    '.SH SYNOPSIS',
    '.B spawn\\-owned',
    '.I COMMAND',
    '.RI [ OPTIONS ]',
    '.SH DESCRIPTION',
    escaped(ABOUT),
    '.SH TERMS',
    ...TERMS.flatMap(([name, text]) => ['.TP', `.B ${escaped(name)}`, escaped(text)]),
    '.SH COMMANDS',
    ...COMMANDS.flatMap((command) => [
      `.SS "${escaped(`${command.name} ${command.usage}`.trimEnd())}"`,
      escaped(`${command.summary}.`),
      ...command.about.flatMap((paragraph) => ['.PP', escaped(paragraph)]),
      ...command.options.flatMap(option),
      ...(command.json ? ['.PP', escaped(`With --json: ${command.json}.`)] : []),
    ]),
    '.SH COMMON OPTIONS',
    ...COMMON.flatMap(option),
    '.SH JSON',
    escaped('The names in the objects that --json prints. "…Name" means all fields of Name.'),
    ...JSON_FIELDS.flatMap(([name, text]) => ['.TP', `.B ${escaped(name)}`, escaped(text)]),
    '.SH EXIT STATUS',
    ...EXIT_CODES.flatMap(([code, meaning]) => ['.TP', `.B ${escaped(code)}`, escaped(meaning)]),
    '.SH ENVIRONMENT',
    '.TP',
    '.B SPAWN_OWNED_REGISTRY',
    'The file of the registry, if \\-\\-registry is not given.',
    '.TP',
    '.B NO_COLOR, FORCE_COLOR',
    'Disable colours; use colours even if the output is no terminal.',
    '.SH SEE ALSO',
    escaped(
      'In the directory of the package: README.md for an introduction, index.d.ts for the functions and types of the library.',
    ),
  ]
}
