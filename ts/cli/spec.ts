// What the command line understands, as data: parsing, help, completions and the man page are made of it.

export interface Option {
  readonly name: string
  readonly short?: string
  /** What stands for the value in the help; a flag has none. `DURATION`, `NUMBER` and `SIZE` are checked and converted. */
  readonly value?: string
  readonly repeatable?: boolean
  readonly help: string
}

export interface Command {
  readonly name: string
  /** What follows the name, as the help shows it. */
  readonly usage: string
  readonly summary: string
  /** More to say, one paragraph each. */
  readonly about: readonly string[]
  readonly options: readonly Option[]
  /** How many words it takes beside its options. */
  readonly words: readonly [least: number, most: number]
  /** A command line of somebody else's follows: after `--`, or from the first word on that is no option of ours. */
  readonly takesCommand?: boolean
  readonly examples: readonly string[]
}

export const COMMON: readonly Option[] = [
  {
    name: 'registry',
    value: 'PATH',
    help: "The registry's file. Default: $SPAWN_OWNED_REGISTRY, else data/process-registry.json here.",
  },
  { name: 'json', help: 'Machine-readable output; shapes in docs/cli.md.' },
  { name: 'help', short: 'h', help: 'Show this help.' },
]

const label: Option = {
  name: 'label',
  value: 'KEY=VALUE',
  repeatable: true,
  help: 'Runs with this label. Several: all of them.',
}
const session: Option = { name: 'session', value: 'ID', help: 'Runs of this session.' }
const scope: Option = { name: 'scope', value: 'KEY', help: 'Runs of this scope.' }
const grace: Option = {
  name: 'grace',
  value: 'DURATION',
  help: 'Time between asking and SIGKILL. Default: as the run was started.',
}
const dryRun: Option = { name: 'dry-run', help: 'Say what would be done, and do nothing.' }
const project: Option = {
  name: 'project',
  value: 'DIR',
  help: 'Where suspects are looked for. Default: the current directory.',
}
const pattern: Option = {
  name: 'pattern',
  value: 'NAME',
  repeatable: true,
  help: 'Names of programs to suspect, instead of the usual agents.',
}

export const COMMANDS: readonly Command[] = [
  {
    name: 'ps',
    usage: '[--session ID] [--scope KEY] [--label K=V]',
    summary: 'List what runs now, of all bots in the registry',
    about: ['CPU is the time that its living processes have used, MEM what they hold in memory.'],
    options: [session, scope, label],
    words: [0, 0],
    examples: ['spawn-owned ps', 'spawn-owned ps --label agent=claude --json'],
  },
  {
    name: 'tree',
    usage: '[RUN]',
    summary: "Show each run's process tree, with those that have left its session",
    about: [],
    options: [session, scope, label],
    words: [0, 1],
    examples: ['spawn-owned tree', 'spawn-owned tree 3f2a'],
  },
  {
    name: 'show',
    usage: 'RUN',
    summary: 'Everything the registry knows about a run',
    about: ['RUN is a run id, or the beginning of one that no other run has.'],
    options: [],
    words: [1, 1],
    examples: ['spawn-owned show 3f2a'],
  },
  {
    name: 'top',
    usage: '[--interval DURATION]',
    summary: 'Watch what runs, sort it, cancel it',
    about: [
      'Keys: up and down (or j and k) choose a run; c, m, p, a sort by CPU, memory, processes, age; x cancels the chosen run after a y; q quits.',
    ],
    options: [
      { name: 'interval', short: 'n', value: 'DURATION', help: 'Time between two looks. Default 1s.' },
    ],
    words: [0, 0],
    examples: ['spawn-owned top'],
  },
  {
    name: 'events',
    usage: '[-f]',
    summary: 'What was decided about orphans, and, with -f, what happens to runs',
    about: ['With --json one object per line.'],
    options: [
      {
        name: 'follow',
        short: 'f',
        help: 'Go on: tell runs that come, change and go, and new decisions.',
      },
      { name: 'lines', short: 'n', value: 'NUMBER', help: 'How many past decisions to show. Default 20.' },
    ],
    words: [0, 0],
    examples: ['spawn-owned events', 'spawn-owned events -f --json'],
  },
  {
    name: 'metrics',
    usage: '',
    summary: 'What there is now, in the text format of Prometheus',
    about: ['For the counters of a bot see metricsText() in that bot.'],
    options: [],
    words: [0, 0],
    examples: ['spawn-owned metrics > /var/lib/node_exporter/spawn-owned.prom'],
  },
  {
    name: 'cancel',
    usage: 'RUN | --session ID | --scope KEY | --label K=V',
    summary: 'End runs with everything they have started',
    about: [
      'Resolved when the trees are gone. What is going to be ended, and why it is ours, is printed first. A selection that matches nothing is an error (3).',
    ],
    options: [
      session,
      scope,
      label,
      grace,
      { name: 'signal', short: 's', value: 'SIGNAL', help: 'How to ask. Default SIGTERM.' },
      dryRun,
    ],
    words: [0, 1],
    examples: ['spawn-owned cancel 3f2a', 'spawn-owned cancel --session chat-17 --grace 2s'],
  },
  {
    name: 'reap',
    usage: '[--dry-run]',
    summary: 'End what bots that are gone have left, as a bot does when it starts',
    about: ['Only what is in the registry, and only if it is proven to be what was recorded.'],
    options: [dryRun, grace],
    words: [0, 0],
    examples: ['spawn-owned reap --dry-run', 'spawn-owned reap'],
  },
  {
    name: 'kill',
    usage: '--orphans [--dry-run] [--force] [--older-than DURATION]',
    summary: 'The same with a table, and, with --force, of suspects too',
    about: [
      'A suspect is not in the registry, but has the name of an agent and runs in the project, or descends from a bot. It is only reported, unless --force is given.',
    ],
    options: [
      { name: 'orphans', help: 'Required: nothing else is ended this way.' },
      dryRun,
      { name: 'force', help: 'End suspects, too.' },
      { name: 'older-than', value: 'DURATION', help: 'Leave younger ones alone.' },
      pattern,
      project,
      grace,
    ],
    words: [0, 0],
    examples: ['spawn-owned kill --orphans --dry-run', 'spawn-owned kill --orphans --force --older-than 30m'],
  },
  {
    name: 'watch',
    usage: '[--interval DURATION] [--max-age DURATION] [--auto-kill]',
    summary: 'Look for orphans until Ctrl-C',
    about: [
      'A bot that dies is noticed at once; the interval is for what cannot be noticed. Suspects are never ended.',
    ],
    options: [
      { name: 'interval', value: 'DURATION', help: 'Time between two looks. Default 60s.' },
      { name: 'max-age', value: 'DURATION', help: 'Leave orphans alone that are younger. Default 0.' },
      { name: 'auto-kill', help: 'End orphans that are proven to be ours.' },
      pattern,
      project,
    ],
    words: [0, 0],
    examples: ['spawn-owned watch --auto-kill --max-age 5m'],
  },
  {
    name: 'run',
    usage: '[OPTIONS] -- COMMAND [ARGUMENT…]',
    summary: 'Own a command from any shell or language',
    about: [
      'Exits as the command does (128 + n after signal n) when its whole tree is gone. Ctrl-C asks the tree to end, a second one kills it.',
      'At a terminal the command gets one of its own, unless --no-pty is given.',
    ],
    options: [
      {
        name: 'timeout',
        short: 't',
        value: 'DURATION',
        help: 'End it after that. Then the exit code is 124.',
      },
      { name: 'no-output-timeout', value: 'DURATION', help: 'End it when it is silent for that long (124).' },
      { ...grace, help: 'Time between asking and SIGKILL. Default 5s.' },
      { name: 'pty', help: 'Give it a terminal.' },
      { name: 'no-pty', help: 'Give it none, even at a terminal.' },
      { name: 'run-id', value: 'ID', help: 'Default: a fresh one.' },
      { ...session, help: 'For filters.' },
      { ...label, help: 'For filters. May be given several times.' },
      { ...scope, help: 'For filters, and for --replace.' },
      { name: 'replace', help: 'End what runs in the scope first.' },
      { name: 'keep', help: 'Let it outlive us if we are killed.' },
      { name: 'cwd', value: 'DIR', help: 'Where it runs.' },
      {
        name: 'memory',
        value: 'SIZE',
        help: 'What all of it may use, such as 512M (Linux with cgroups, Windows).',
      },
      { name: 'processes', value: 'NUMBER', help: 'How many of it there may be (likewise).' },
      { name: 'summary', help: 'Say on stderr how it ended.' },
    ],
    words: [0, 0],
    takesCommand: true,
    examples: [
      'spawn-owned run --timeout 10m -- npx some-agent',
      'spawn-owned run --no-output-timeout 90s -- make test',
    ],
  },
  {
    name: 'doctor',
    usage: '',
    summary: 'What this system offers, and whether everything is in order',
    about: ['Starts and ends one command as a trial, in a registry of its own.'],
    options: [],
    words: [0, 0],
    examples: ['spawn-owned doctor'],
  },
  {
    name: 'completion',
    usage: 'bash | zsh | fish',
    summary: 'Print completions for a shell',
    about: [],
    options: [],
    words: [1, 1],
    examples: ['spawn-owned completion bash > /etc/bash_completion.d/spawn-owned'],
  },
]

export const EXIT_CODES: readonly (readonly [code: string, meaning: string])[] = [
  ['0', 'Done; run: the command exited with 0.'],
  ['1', 'Something could not be done, such as a process that could not be ended.'],
  ['2', 'The command line was not understood. Nothing was touched.'],
  ['3', 'Nothing matches the selection.'],
  ['124', 'run: a deadline ended the command.'],
  ['125', 'run: the command could not be owned, and was not started.'],
  ['126, 127', 'run: the command could not be executed; was not found.'],
  ['128 + n', 'run: signal n ended the command. 130 after Ctrl-C.'],
]
