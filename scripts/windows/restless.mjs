// Tests that take minutes in Wine, where a process takes ten times as long to start: hundreds of bots one after the other, or a hundred thousand
// lines of a registry. CI leaves them to Windows itself.
export const restless = new Set(
  [
    'beside-child-process',
    'drop-in',
    'reap-crowded',
    'registry-crash',
    'registry-old-files',
    'registry-trouble',
    'soak',
    'workers',
  ].map((name) => `${name}.test.mjs`),
)

/** Run when all others are through: it waits for a number to come round, which others would take. */
export const alone = new Set(['windows-pid-reuse.test.mjs'])
