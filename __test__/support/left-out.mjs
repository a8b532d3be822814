// Where a test is left out, as far as that can be read in its file: from its own options, those of its group, and those of the whole file.

/** What is written there, and where that leaves it out. */
const marks = [
  [/\blinux(Only|Tests)\(|\bwithoutNamespace\b/, ['darwin', 'win32']],
  [/\bposix(Only|Tests)\(/, ['win32']],
  [/\bwindowsOnly\(/, ['darwin', 'linux']],
  [/\bnotOnMacos\(/, ['darwin']],
]

/** `describe(name, options, () =>`, `test(name, options, async (t) =>`, each with what stands between its name and its function. */
const CALLS = /^( *)(describe|test)\(\s*((['"`]).*?\4|[\w.]+),\s*([\s\S]*?)(?:async )?\(\w*\) =>/gm

/** Whether the tests of that name, or of the group of that name, are left out on a system; all of the file, without a name. */
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
  if (index < 0) throw new Error(`“${name}” is written in a way that is not understood here`)
  const call = calls[index]
  const group = calls.slice(0, index).findLast(({ isGroup, depth }) => isGroup && depth < call.depth)
  if (says(call) || (group && says(group))) return true
  const inside = call.isGroup ? membersOf(calls.slice(index + 1), call.depth) : []
  return inside.length > 0 && inside.every(says)
}

/** The calls that follow a group and are deeper than it. */
function membersOf(following, depth) {
  const end = following.findIndex((call) => call.depth <= depth)
  return following.slice(0, end < 0 ? undefined : end)
}

const words = (options) => options.match(/\b[a-z]\w+\b/gi) ?? []
