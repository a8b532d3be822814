// Tests that take minutes in Wine, where a process takes ten times as long to start: hundreds of bots one after the other, or a hundred thousand
// lines of a registry. CI leaves them to Windows itself.
//
// And pty-lifecycle, which does not end there: the output of a terminal that was open while twenty others came and went has no end, though nobody
// of its tree and none of its console is left. Whether that is Wine or us is not known.
export const restless = new Set(
  [
    'beside-child-process',
    'drop-in',
    'pty-lifecycle',
    'reap-crowded',
    'registry-crash',
    'registry-old-files',
    'registry-trouble',
    'soak',
    'workers',
  ].map((name) => `${name}.test.mjs`),
)
