// The answer of one system to one promise: a cell of a table in docs/guarantees.md. `note` goes
// below the table.
//
// `tests` lists [file, name, remark]:
// - file: `hostile-trees` is the only __test__/**/hostile-trees.test.mjs, `pty/session` the only
//   session.test.mjs in a folder `pty`. A file with an extension is a path from the root.
// - name: the name of the test or its group, or a part of it; '' means all tests of the file.
// - remark: optional, for example the fixture of the tree in question.

/** The promise holds. */
export const yes = (tests, note) => ({ mark: 'yes', note, tests })

/** The promise holds within the limit that the note states. */
export const partly = (note, tests) => ({ mark: 'part', note, tests })

/** Nothing is promised. The tests, if any, show what happens instead. */
export const no = (note, tests = []) => ({ mark: 'no', note, tests })

/** The situation does not exist on this system. */
export const absent = (note) => ({ mark: '–', note, tests: [] })

/** The same answer as Linux. The tests of Linux must also run on this system. */
export const asLinux = (tests = [], note = undefined) => ({ isAsLinux: true, note, tests })
