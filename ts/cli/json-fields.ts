// The names that `json` in command-spec.ts uses, for the man page.

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
