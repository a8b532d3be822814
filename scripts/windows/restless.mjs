// Tests that take minutes in Wine, where a process start takes ten times as long: hundreds of bots
// in sequence, or a hundred thousand lines of a registry. CI runs them only on real Windows.
export const restless = new Set(
  [
    'beside-child-process',
    'drop-in',
    'drop-in-process',
    'reap-crowded',
    'registry-crash',
    'registry-old-files',
    'registry-damaged',
    'registry-errors',
    'soak',
    'workers',
  ].map((name) => `${name}.test.mjs`),
)

/**
 * Run after all others: it waits until a PID is assigned again, and other processes would take it.
 */
export const alone = new Set(['windows-pid-reuse.test.mjs'])
