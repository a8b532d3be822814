// docs/design.md agrees with the code: the list of files, the boundaries between the rooms of src/,
// and the hops of the two walks.

import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const read = (path) => readFileSync(join(root, path), 'utf8')
const design = read('docs/design.md')

/** The Rust files of src/ without test files, each with its room and its code without tests. */
const sources = readdirSync(join(root, 'src'), { recursive: true })
  .map((path) => path.split(sep).join('/'))
  .filter((path) => path.endsWith('.rs') && path !== 'lib.rs' && !/(^|\/)tests(\/|\.rs$)/.test(path))
  .map((path) => ({ path: `src/${path}`, room: roomOf(path), code: productionCode(read(`src/${path}`)) }))

/** A room is a folder of src/, or a single file that has no folder of its own. */
function roomOf(path) {
  return path.split('/')[0].replace(/\.rs$/, '')
}

const rooms = [...new Set(sources.map(({ room }) => room))].sort()

/** The lines of the section with this heading. */
function section(heading) {
  const [, text] = design.split(new RegExp(`^#+ ${heading}$`, 'm'))
  assert.ok(text, `docs/design.md has no section "${heading}"`)
  return text.split(/^#/m)[0].split('\n')
}

/** The cells of the table in a section, without its head. */
function table(heading) {
  const rows = section(heading).filter((line) => line.startsWith('|'))
  return rows.slice(2).map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
}

const words = (cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, word]) => word)

/** Source text with spaces in place of comments and of string and character literals. */
function withoutCommentsAndStrings(text) {
  const tokens =
    /\/\/[^\n]*|b?r(#*)"[\s\S]*?"\1|b?"(?:\\[\s\S]|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\])'|\/\*/g
  let result = ''
  let at = 0
  for (let match = tokens.exec(text); match; match = tokens.exec(text)) {
    result += text.slice(at, match.index)
    if (match[0] === '/*') tokens.lastIndex = endOfBlockComment(text, match.index)
    at = tokens.lastIndex
    result += text.slice(match.index, at).replace(/[^\n]/g, ' ')
  }
  return result + text.slice(at)
}

/** Block comments nest in Rust. */
function endOfBlockComment(text, start) {
  let depth = 0
  for (const { 0: mark, index } of text.slice(start).matchAll(/\/\*|\*\//g)) {
    depth += mark === '/*' ? 1 : -1
    if (depth === 0) return start + index + 2
  }
  return text.length
}

/** Code without comments, literals and items that are compiled only for tests. */
function productionCode(text) {
  let code = withoutCommentsAndStrings(text)
  const onlyInTests = /#\[cfg\((?:test|all\((?=[^\]]*\btest\b)(?![^\]]*\bnot\()[^\]]*\))\)\]/
  for (let match = onlyInTests.exec(code); match; match = onlyInTests.exec(code)) {
    code = code.slice(0, match.index) + code.slice(endOfItem(code, match.index + match[0].length))
  }
  return code
}

/** Where the item that begins here ends: after its body, or after its semicolon. */
function endOfItem(code, start) {
  let depth = 0
  for (let at = start; at < code.length; at++) {
    if ('([{'.includes(code[at])) depth++
    if (')]}'.includes(code[at])) depth--
    if (depth === 0 && (code[at] === '}' || code[at] === ';')) return at + 1
    if (depth < 0) return at
  }
  return code.length
}

/** The other rooms that this file uses. */
function usedRooms({ path, room, code }) {
  const names = [...code.matchAll(/\bcrate::(\w+)/g)].map(([, name]) => name)
  for (const [, group] of code.matchAll(/\bcrate::(\{[\s\S]*?;)/g)) names.push(...topNames(group))
  // A file of a binary names the library by the name of its crate.
  if (room === 'bin') names.push(...[...code.matchAll(/\bspawn_owned::(\w+)/g)].map(([, name]) => name))
  // `super` of the top module of a room is the crate itself.
  const depth = path.replace(/\/mod\.rs$|\.rs$/, '').split('/').length - 1
  for (const [, chain, name] of code.matchAll(/\b((?:super::)+)(\w+)/g)) {
    if (chain.split('::').length - 1 >= depth && rooms.includes(name)) names.push(name)
  }
  return names.filter((name) => name !== room)
}

/** The first names in `{a::b, c::{d, e}, f};`. */
function topNames(group) {
  let depth = 0
  let names = ''
  for (const letter of group) {
    if (letter === '}') depth--
    if (depth === 1) names += letter
    if (letter === '{') depth++
    if (depth === 0) break
  }
  return names.split(',').flatMap((part) => part.match(/^\s*(\w+)/)?.[1] ?? [])
}

describe('the boundaries between the rooms of src/', () => {
  const layers = new Map(table('Boundaries').map(([layer, room]) => [words(room)[0], Number(layer)]))
  const allowed = new Map(
    table('Boundaries').map(([, room, uses]) => [words(room)[0], allowedBy(room, uses)]),
  )

  /** A cell names the allowed rooms, or the forbidden ones: "all lower, except `pty`". */
  function allowedBy(room, uses) {
    if (!uses.startsWith('all lower')) return words(uses)
    const lower = rooms.filter((name) => layers.get(name) < layers.get(words(room)[0]))
    return lower.filter((name) => !words(uses).includes(name))
  }

  test('the table has one row for each room', () => {
    assert.deepEqual([...allowed.keys()].sort(), rooms)
    assert.equal(table('Boundaries').length, rooms.length)
  })

  test('a room uses only the rooms that its row allows', () => {
    const forbidden = sources.flatMap((source) =>
      usedRooms(source)
        .filter((name) => !allowed.get(source.room)?.includes(name))
        .map((name) => `${source.path} uses ${name}`),
    )
    assert.deepEqual(forbidden, [])
  })

  test('a row allows no room that its room does not use', () => {
    const used = new Map(rooms.map((room) => [room, new Set()]))
    for (const source of sources) for (const name of usedRooms(source)) used.get(source.room).add(name)
    const unused = [...allowed].flatMap(([room, uses]) =>
      uses.filter((name) => !used.get(room)?.has(name)).map((name) => `${room} does not use ${name}`),
    )
    assert.deepEqual(unused, [])
  })

  test('a room uses only rooms of lower layers, so there is no cycle', () => {
    const upwards = [...allowed].flatMap(([room, uses]) =>
      uses.filter((name) => !(layers.get(name) < layers.get(room))).map((name) => `${room} uses ${name}`),
    )
    assert.deepEqual(upwards, [])
  })

  test('only src/node uses the crate napi', () => {
    const users = sources.filter(({ code }) => /\bnapi(_derive|_build|_sys)?\b/.test(code))
    assert.deepEqual([...new Set(users.map(({ room }) => room))], ['node'])
  })

  test('the reader of Rust code ignores comments, strings and tests, and nothing else', () => {
    const rooms = (code) =>
      usedRooms({ path: 'src/spawn/unix.rs', room: 'spawn', code: productionCode(code) })
    assert.deepEqual(rooms('use crate::run::Policy; fn f() { crate::errno::f() }'), ['run', 'errno'])
    assert.deepEqual(rooms('use crate::{run::{Policy, signal}, errno};\nuse crate::pty;'), [
      'pty',
      'run',
      'errno',
    ])
    assert.deepEqual(rooms('// crate::run\n/* /* crate::run */ crate::pty */ let a = "crate::reap";'), [])
    assert.deepEqual(rooms('let quote = \'"\'; crate::run::f(); let other = b"\\"";'), ['run'])
    assert.deepEqual(rooms('fn f<\'a>(a: &\'a str) { r#"crate::pty"#; crate::reap::f() }'), ['reap'])
    assert.deepEqual(rooms('#[cfg(test)]\nmod tests { use crate::pty; fn f() { {} } }\nuse crate::reap;'), [
      'reap',
    ])
    assert.deepEqual(rooms('#[cfg(all(test, unix))]\nuse crate::{pty};\nuse crate::reap;'), ['reap'])
    assert.deepEqual(rooms('#[cfg(any(windows, test))]\nuse crate::pty;'), ['pty'])
    assert.deepEqual(rooms('#[cfg(not(test))]\nuse crate::pty;'), ['pty'])
    assert.deepEqual(rooms('use super::super::errno; use super::pty;'), ['errno'])
  })
})

describe('the list of files', () => {
  const rows = section('Rooms')
    .join('\n')
    .split(/^- (?=\*\*`)/m)
    .slice(1)
    .map((row) => ({ folder: words(row)[0], names: words(row).slice(1) }))
    .filter(({ folder }) => /^(src|ts)\/(.*\/)?$/.test(folder))
    .map(({ folder, names }) => ({ folder, names: names.filter((name) => /\.(rs|ts)$|\/$/.test(name)) }))

  test('each folder of src/ and ts/ has a row', () => {
    const folders = ['src', 'ts'].flatMap((top) =>
      readdirSync(join(root, top), { withFileTypes: true })
        .filter((entry) => entry.isDirectory() && !existsSync(join(root, top, `${entry.name}.rs`)))
        .map((entry) => `${top}/${entry.name}/`),
    )
    const listed = new Set(rows.map(({ folder }) => folder))
    assert.deepEqual(
      folders.filter((folder) => !listed.has(folder)),
      [],
    )
  })

  test('each file of a folder is in its row', () => {
    const covers = (name, file) => name === file || (name.endsWith('/') && file.startsWith(name))
    const missing = rows.flatMap(({ folder, names }) =>
      filesOf(folder)
        .filter((file) => !names.some((name) => covers(name, file)))
        .map((file) => `${folder}${file}`),
    )
    assert.deepEqual(missing, [])
  })

  test('each file in a row exists', () => {
    const missing = rows.flatMap(({ folder, names }) =>
      names.filter((name) => !existsSync(join(root, folder, name))).map((name) => `${folder}${name}`),
    )
    assert.deepEqual(missing, [])
  })
})

/** The files of a folder without tests and `mod.rs`. The tops of src/ and ts/ count without folders. */
function filesOf(folder) {
  return readdirSync(join(root, folder), { recursive: !/^(src|ts)\/$/.test(folder) })
    .map((path) => path.split(sep).join('/'))
    .filter((path) => /\.(rs|ts)$/.test(path) && !/(^|\/)(tests(\/.*)?|mod)\.rs$/.test(path))
}

describe('the walks', () => {
  for (const walk of ['A spawn, hop by hop', 'A reap, hop by hop']) {
    const items = section(walk).filter((line) => /^\d/.test(line))
    const hops = items.map((line) => line.match(/^(\d+)\. `([^`]+)` · `([^`]+)`: \S/)?.slice(1) ?? [line])

    test(`${walk}: each hop has a number, a file, a function and what it passes on`, () => {
      assert.deepEqual(
        hops.map(([number]) => Number(number)),
        hops.map((_, index) => index + 1),
      )
      assert.ok(hops.length > 0)
    })

    test(`${walk}: each file exists and defines its function`, () => {
      const missing = hops.filter(([, file, name]) => !defines(file, name))
      assert.deepEqual(
        missing.map(([, file, name]) => `${file} does not define ${name}`),
        [],
      )
    })
  }
})

/** Whether a file defines this function. Its type may precede it: `Host::begin`, `Registry.plan`. */
function defines(file, name) {
  if (!existsSync(join(root, file))) return false
  const parts = name.split(/::|\./)
  const isRust = file.endsWith('.rs')
  const code = isRust ? productionCode(read(file)) : read(file)
  const definition = isRust ? rustDefinition : typescriptDefinition
  return parts.every((part, index) => definition(part, index === parts.length - 1).test(code))
}

function rustDefinition(name, isFunction) {
  return isFunction
    ? new RegExp(`\\bfn ${name}\\b`)
    : new RegExp(`\\b(?:struct|enum) ${name}\\b|\\bimpl(?:<[^>]*>)? ${name}\\b`)
}

function typescriptDefinition(name, isFunction) {
  if (!isFunction) return new RegExp(`\\bclass ${name}\\b`)
  const method = `^ +(?:readonly |async |static )*${name}`
  return new RegExp(
    `\\bfunction ${name}\\b|\\bconst ${name}\\b|${method}(?:<[^>]*>)?\\(|${method}(?:: [^=]+)? = `,
    'm',
  )
}
