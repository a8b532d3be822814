// Where a test is left out, according to its file: its own options, those of its group, and those
// of the file.

/** Marks in the source, and the systems on which they leave a test out. */
const marks = [
  [/\blinux(Only|Tests)\(|\bwithoutNamespace\b/, ['darwin', 'win32']],
  [/\bposix(Only|Tests)\(/, ['win32']],
  [/\bwindowsOnly\(/, ['darwin', 'linux']],
  [/\bnotOnMacos\(/, ['darwin']],
]

/**
 * `describe(name, options, () =>`, `test(name, options, async (t) =>`: each with the text between
 * name and function.
 */
const CALLS = /^( *)(describe|test)\(\s*((['"`]).*?\4|[\w.]+),\s*([\s\S]*?)(?:async )?\(\w*\) =>/gm

/**
 * Whether the tests with that name, or in the group with that name, are left out on a system;
 * without a name, all of the file.
 */
export function isLeftOut(text, name, system) {
  const isMarked = (words) => marks.some(([mark, where]) => where.includes(system) && mark.test(words))
  const meaningOf = (constant) => text.match(new RegExp(`^ *const ${constant} = (.*)$`, 'm'))?.[1] ?? ''
  const says = ({ options }) => isMarked(options) || words(options).some((word) => isMarked(meaningOf(word)))

  if (isMarked(text.match(/^const \{.*\btest\b.*\} = (.*)$/m)?.[1] ?? '')) return true
  if (name === '') return false
  const calls = [...text.matchAll(CALLS)].map(([, indent, what, called, , options]) => ({
    depth: indent.length,
    isGroup: what === 'describe',
    name: called,
    options,
  }))
  const index = calls.findIndex((call) => call.name.includes(name))
  if (index < 0)
    throw new Error(`cannot find the call of “${name}”: its form is not supported by left-out.mjs`)
  const call = calls[index]
  const group = calls.slice(0, index).findLast(({ isGroup, depth }) => isGroup && depth < call.depth)
  if (says(call) || (group && says(group))) return true
  const inside = call.isGroup ? membersOf(calls.slice(index + 1), call.depth) : []
  return inside.length > 0 && inside.every(says)
}

/** The calls that follow a group and are nested in it. */
function membersOf(following, depth) {
  const end = following.findIndex((call) => call.depth <= depth)
  return following.slice(0, end < 0 ? undefined : end)
}

const words = (options) => options.match(/\b[a-z]\w+\b/gi) ?? []
