// The specification of the command line, as data. Parser, help, completions and man page use it.

export interface Option {
  readonly name: string
  readonly short?: string
  /** The placeholder of the value in the help. A flag has none. */
  readonly value?: string
  /** The kind of the value, see values.ts. Default: the placeholder. */
  readonly kind?: string
  /** The limits of a number; for a duration in ms, for a size in bytes. */
  readonly least?: number
  readonly most?: number
  readonly repeatable?: boolean
  readonly help: string
}

export interface Command {
  readonly name: string
  /** The text after the name in the usage line. */
  readonly usage: string
  readonly summary: string
  /** Further paragraphs of the help. */
  readonly about: readonly string[]
  readonly options: readonly Option[]
  /** How many arguments it takes, without options. */
  readonly words: readonly [least: number, most: number]
  /** A command line to run follows: after `--`, or from the first argument that is no option. */
  readonly takesCommand?: boolean
  /** Options and arguments that exclude each other, `RUN` or `--name`, and why. */
  readonly conflicts?: readonly (readonly [one: string, other: string, why?: string])[]
  /** Options that need another one. */
  readonly requires?: readonly (readonly [option: string, needed: string])[]
  /** At least one of these must be given. */
  readonly oneOf?: readonly string[]
  /** What `--json` prints. A command without it has no `--json`. man-page.ts explains the names. */
  readonly json?: string
  readonly examples: readonly string[]
}

export const COMMON: readonly Option[] = [
  {
    name: 'registry',
    value: 'PATH',
    help: 'File of the registry. Default: $SPAWN_OWNED_REGISTRY, else ./data/process-registry.json.',
  },
  { name: 'json', help: 'Print JSON, for programs. New versions only add fields.' },
  { name: 'help', short: 'h', help: 'Show this help.' },
]

/** Returns all options of a command. */
export const optionsOf = ({ options, json }: Command): Option[] => [
  ...options,
  ...COMMON.filter(({ name }) => json !== undefined || name !== 'json'),
]

const DAY = 86_400_000
/** 100 years. */
const LONGEST = 36_500 * DAY

const label: Option = {
  name: 'label',
  value: 'KEY=VALUE',
  repeatable: true,
  help: 'Select runs with this label. If repeated: with all of the labels.',
}
const session: Option = { name: 'session', value: 'ID', help: 'Select runs of this session.' }
const scope: Option = { name: 'scope', value: 'KEY', help: 'Select runs of this scope.' }
const grace: Option = {
  name: 'grace',
  value: 'DURATION',
  most: LONGEST,
  help: 'Time between the first signal and SIGKILL. Default: the grace of the run.',
}
const signal: Option = {
  name: 'signal',
  short: 's',
  value: 'SIGNAL',
  help: 'First signal, as name or number. Default SIGTERM.',
}
const dryRun: Option = { name: 'dry-run', help: 'Print what would be done. Change nothing.' }
const project: Option = {
  name: 'project',
  value: 'DIR',
  kind: 'PROJECT',
  help: 'Directory in which suspects run. Default: the current directory.',
}
const pattern: Option = {
  name: 'pattern',
  value: 'NAME',
  repeatable: true,
  help: 'Program name of suspects, instead of the built-in list of agents. Repeatable.',
}

const CANCELLED = '{dryRun, results: [CancelResult]}; with --dry-run {dryRun, runs: [RUN]}'
const RUN = 'RUN is a run id, or its first characters if no other id starts with them.'
const ONE_SELECTION = (['--session', '--scope', '--label'] as const).map((other) => ['RUN', other] as const)
/** The options of `kill --orphans`. */
const ORPHANS_ONLY = ['--orphans', '--force', '--older-than', '--pattern', '--project'] as const

export const COMMANDS: readonly Command[] = [
  {
    name: 'ps',
    usage: '[-a] [--session ID] [--scope KEY] [--label K=V]',
    summary: 'List the live runs of all bots in the registry',
    about: [
      'CPU is the CPU time of the live processes of a run, MEM their resident memory. OWNER is the PID of the bot. If the bot is dead, STATE is kept (the run may outlive its bot) or orphaned.',
      'CONTAINMENT is what finds every process of a run: keeper (a helper process that adopts them), cgroup (a control group of Linux), job (a Job Object of Windows); group or process for a process that a bot registered. A narrow terminal shows fewer columns; --json has all.',
    ],
    options: [
      { name: 'all', short: 'a', help: 'Also list ended runs, and how they ended.' },
      session,
      scope,
      label,
    ],
    words: [0, 0],
    json: '{runs: [RUN]}; with --all also ended: [ENDED]',
    examples: ['spawn-owned ps', 'spawn-owned ps -a', 'spawn-owned ps --label agent=claude --json'],
  },
  {
    name: 'tree',
    usage: '[RUN]',
    summary: 'Show the process tree of each run',
    about: [
      RUN,
      '"left the session" marks a process that called setsid. It still belongs to the run, and ends with it.',
    ],
    options: [session, scope, label],
    words: [0, 1],
    conflicts: ONE_SELECTION,
    json: '{runs: [RUN]}',
    examples: ['spawn-owned tree', 'spawn-owned tree 3f2a'],
  },
  {
    name: 'inspect',
    usage: 'RUN',
    summary: 'Show everything about a run, live or ended',
    about: [RUN],
    options: [],
    words: [1, 1],
    json: 'RUN; for an ended run ENDED',
    examples: ['spawn-owned inspect 3f2a', 'spawn-owned inspect 3f2a --json'],
  },
  {
    name: 'show',
    usage: 'RUN',
    summary: 'The same as "inspect"',
    about: [RUN],
    options: [],
    words: [1, 1],
    json: 'RUN; for an ended run ENDED',
    examples: ['spawn-owned show 3f2a'],
  },
  {
    name: 'top',
    usage: '[--interval DURATION]',
    summary: 'Show the runs continuously; sort and cancel them',
    about: [
      'Keys: up and down (or j and k) select a run; c, m, p, a sort by CPU, memory, processes, age; x and then y cancels the selected run; q quits.',
    ],
    options: [
      {
        name: 'interval',
        short: 'n',
        value: 'DURATION',
        least: 50,
        most: 24 * DAY,
        help: 'Time between two updates. Default 1s.',
      },
    ],
    words: [0, 0],
    examples: ['spawn-owned top'],
  },
  {
    name: 'events',
    usage: '[-f]',
    summary: 'Show decisions about orphans and, with -f, changes of runs',
    about: [
      'A decision is a line of orphan-events.log beside the registry: which process was found after the death of its bot, and what was done with it.',
      'A run that ends is printed with its reason and its exit code or signal.',
    ],
    options: [
      {
        name: 'follow',
        short: 'f',
        help: 'Continue: print new decisions, and runs that start, change and end.',
      },
      { name: 'lines', short: 'n', value: 'NUMBER', help: 'Number of past decisions. Default 20.' },
    ],
    words: [0, 0],
    json: 'one object per line: DECISION; with --follow also CHANGE',
    examples: ['spawn-owned events', 'spawn-owned events -f --json'],
  },
  {
    name: 'metrics',
    usage: '',
    summary: 'Print the current state in the text format of Prometheus',
    about: ['The counters of a bot are available in that bot only, with metricsText().'],
    options: [],
    words: [0, 0],
    json: '{metrics: [{name, type, help, values: [{labels, value}]}]}',
    examples: ['spawn-owned metrics > /var/lib/node_exporter/spawn-owned.prom'],
  },
  {
    name: 'cancel',
    usage: 'RUN | --session ID | --scope KEY | --label K=V',
    summary: 'Terminate runs with all processes that they started',
    about: [
      RUN,
      'The command first prints the runs that it terminates, with the PID of their bot. It exits when no process of these runs is left. A selection that matches no run is an error (exit status 3).',
    ],
    options: [session, scope, label, grace, signal, dryRun],
    words: [0, 1],
    conflicts: ONE_SELECTION,
    oneOf: ['RUN', '--session', '--scope', '--label'],
    json: CANCELLED,
    examples: ['spawn-owned cancel 3f2a', 'spawn-owned cancel --session chat-17 --grace 2s'],
  },
  {
    name: 'stop',
    usage: 'RUN',
    summary: 'Terminate a run: SIGTERM, then SIGKILL after its grace',
    about: [RUN, 'The same as "cancel RUN". The command exits when no process of the run is left.'],
    options: [grace, signal, dryRun],
    words: [1, 1],
    json: CANCELLED,
    examples: ['spawn-owned stop 3f2a', 'spawn-owned stop 3f2a --grace 30s'],
  },
  {
    name: 'reap',
    usage: '[--dry-run]',
    summary: 'Terminate orphans: the runs of bots that are gone',
    about: [
      'Only runs in the registry are terminated, and only processes that are proven to be the recorded ones.',
      'STATUS is confirmed (the recorded process is alive, and its bot is gone), gone (it has ended), PID reused (another process has its PID now) or skipped (it cannot be identified). A run that is gone loses its entry in the registry.',
    ],
    options: [dryRun, grace],
    words: [0, 0],
    json: '{dryRun, …ReapReport}',
    examples: ['spawn-owned reap --dry-run', 'spawn-owned reap'],
  },
  {
    name: 'kill',
    usage: 'RUN | --orphans [--dry-run] [--force] [--older-than DURATION]',
    summary: 'Kill a run at once; or terminate orphans and, with --force, suspects',
    about: [
      RUN,
      'With a RUN, every process of it gets SIGKILL at once, without a grace. With --orphans it terminates orphans as "reap" does: runs whose bot is gone.',
      'A suspect is a process that is not in the registry, has the name of an agent, and runs in the project or descends from a bot. It is only reported, unless --force is given.',
    ],
    options: [
      { name: 'orphans', help: 'Terminate orphans, and list suspects.' },
      dryRun,
      { name: 'force', help: 'Terminate suspects too.' },
      { name: 'older-than', value: 'DURATION', most: LONGEST, help: 'Skip younger processes.' },
      pattern,
      project,
      grace,
    ],
    words: [0, 1],
    conflicts: [
      ...ORPHANS_ONLY.map((other) => ['RUN', other] as const),
      ['RUN', '--grace', '"kill RUN" sends SIGKILL at once. Use "stop RUN"'],
    ],
    oneOf: ['RUN', '--orphans'],
    json: 'with --orphans {dryRun, …OrphanReport}; with a RUN the same as "stop"',
    examples: [
      'spawn-owned kill 3f2a',
      'spawn-owned kill --orphans --dry-run',
      'spawn-owned kill --orphans --force --older-than 30m',
    ],
  },
  {
    name: 'watch',
    usage: '[--interval DURATION] [--max-age DURATION] [--auto-kill]',
    summary: 'Report orphans as they appear, until Ctrl-C',
    about: [
      'Prints each run whose bot is gone, and each suspect (see "kill"). With --auto-kill it terminates the runs; it never terminates suspects.',
      'The death of a bot starts a search at once. The searches at intervals find the other cases.',
    ],
    options: [
      {
        name: 'interval',
        value: 'DURATION',
        least: 100,
        most: 24 * DAY,
        help: 'Time between two searches. Default 60s.',
      },
      {
        name: 'max-age',
        value: 'DURATION',
        most: LONGEST,
        help: 'Skip orphans that are younger. Default 0.',
      },
      { name: 'auto-kill', help: 'Terminate confirmed orphans.' },
      pattern,
      project,
    ],
    words: [0, 0],
    json: 'one object per line: {type, at, …OrphanEvent}',
    examples: ['spawn-owned watch --auto-kill --max-age 5m'],
  },
  {
    name: 'run',
    usage: '[OPTIONS] -- COMMAND [ARGUMENT…]',
    summary: 'Run a command as an owned run, from any shell or language',
    about: [
      'spawn-owned exits when no process of the command is left, with the exit status of the command (128 + n after signal n).',
      'At a terminal, the command gets its own terminal, and receives Ctrl-C itself.',
      'Without a terminal, or with --no-pty or --keep, it inherits stdin, stdout and stderr. Ctrl-C then terminates all of its processes, and a second Ctrl-C kills them. With --no-output-timeout it writes to pipes instead, and spawn-owned copies its output to stdout and stderr.',
    ],
    options: [
      {
        name: 'timeout',
        short: 't',
        value: 'DURATION',
        most: LONGEST,
        help: 'Terminate the command after this time (exit status 124). 0 means no timeout.',
      },
      {
        name: 'no-output-timeout',
        value: 'DURATION',
        most: LONGEST,
        help: 'Terminate the command if it prints nothing for this time (exit status 124). 0 means no timeout.',
      },
      { ...grace, help: 'Time between the first signal and SIGKILL. Default 5s.' },
      { name: 'pty', help: 'Run the command in a terminal.' },
      { name: 'no-pty', help: 'Run the command without a terminal.' },
      { name: 'run-id', value: 'RUN', help: 'Id of the run. Default: a random UUID.' },
      { ...session, help: 'Session of the run, for filters.' },
      { ...label, help: 'Label of the run, for filters. Repeatable.' },
      { ...scope, help: 'Scope of the run, for filters and --replace.' },
      { name: 'replace', help: 'Terminate the earlier runs of the scope first.' },
      { name: 'keep', help: 'Let the run continue if this spawn-owned process is killed.' },
      { name: 'cwd', value: 'DIR', help: 'Working directory of the command.' },
      {
        name: 'memory',
        value: 'SIZE',
        least: 1,
        help: 'Memory limit of the whole tree, such as 512M (Linux with cgroups, Windows).',
      },
      {
        name: 'processes',
        value: 'NUMBER',
        least: 1,
        help: 'Limit of processes in the tree (Linux with cgroups, Windows).',
      },
      { name: 'summary', help: 'Print to stderr how the run ended.' },
    ],
    words: [0, 0],
    takesCommand: true,
    conflicts: [
      ['--pty', '--no-pty'],
      ['--pty', '--keep', 'the terminal is closed when spawn-owned ends. Use tmux or screen'],
      [
        '--no-output-timeout',
        '--keep',
        'spawn-owned reads the output to measure the time, and a kept run would lose its reader',
      ],
    ],
    requires: [['--replace', '--scope']],
    json: 'RunExit, on stderr, after the run has ended',
    examples: [
      'spawn-owned run --timeout 10m -- npx some-agent',
      'spawn-owned run --no-output-timeout 90s -- make test',
    ],
  },
  {
    name: 'doctor',
    usage: '',
    summary: 'Check this system and the registry',
    about: [
      'Prints what it finds, why that matters, and what to do: ok, -- (this system lacks an optional feature), !! (a warning), XX (runs cannot start). It starts one command as a trial, in a temporary registry.',
    ],
    options: [],
    words: [0, 0],
    json: '{ok, checks: [{name, status, detail, advice}]}; status is ok, missing, warning or failed',
    examples: ['spawn-owned doctor', 'spawn-owned doctor --json'],
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
