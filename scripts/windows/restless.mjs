// Tests that take minutes in Wine, where a process takes ten times as long to start: hundreds of bots one after the other, or a hundred thousand
// lines of a registry. CI leaves them to Windows itself.
//
// And some that do not end there, for reasons that are not found yet. pty and pty-lifecycle: now and then the output of a terminal has no end, though
// nobody of its tree and none of its console is left. suspects and watch-orphans: a look at all processes and their command lines does not return.
export const restless = new Set(
  [
    'beside-child-process',
    'drop-in',
    'pty',
    'pty-lifecycle',
    'reap-crowded',
    'registry-crash',
    'registry-old-files',
    'registry-trouble',
    'soak',
    'suspects',
    'watch-orphans',
    'workers',
  ].map((name) => `${name}.test.mjs`),
)
