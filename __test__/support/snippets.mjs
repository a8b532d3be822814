// The snippets of the documents: JavaScript and TypeScript in README.md, docs/ and the @example
// blocks of the declarations.
//
// A comment before a snippet, which readers do not see, says what it needs:
//   <!-- before: CODE -->             CODE comes before the snippet, such as names that it uses
//   <!-- compiled only: REASON -->    the snippet cannot run in a test
//   <!-- not compiled: REASON -->     the snippet is not TypeScript by itself
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

const MARK = /<!-- (before|compiled only|not compiled): ((?:(?!-->).)*?) -->\n/gs
const SNIPPET =
  /((?:^<!-- (?:(?!-->).)*? -->\n)*)^( *)```(?:js|javascript|mjs|ts|typescript|mts)\n(.*?)^\2```$/gms

/** All snippets: `{ name, code, before, compiledOnly, notCompiled }`. `name` is `docs/pty.md:8`. */
export function allSnippets() {
  const pages = ['README.md', ...find('docs', '.md')]
  const declarations = ['index.d.ts', ...find('types', '.d.ts')]
  return [
    ...pages.filter((page) => !page.startsWith('docs/api/')).flatMap((page) => snippets(page, read(page))),
    ...declarations
      .flatMap((file) => snippets(file, examples(read(file))))
      .map((snippet) => ({
        ...snippet,
        compiledOnly: 'an example of a declaration has no comment before it',
      })),
  ]
}

function snippets(file, text) {
  return [...text.matchAll(SNIPPET)].map(({ index, 1: comments, 2: indent, 3: body }) => {
    const marks = Object.fromEntries([...comments.matchAll(MARK)].map(([, kind, value]) => [kind, value]))
    const line = text.slice(0, index + comments.length).split('\n').length + 1
    return {
      name: `${file}:${line}`,
      code: body.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
      before: marks.before ?? '',
      compiledOnly: marks['compiled only'],
      notCompiled: marks['not compiled'],
    }
  })
}

/** The @example blocks of a declaration file, each at its own line. */
function examples(declarations) {
  let isExample = false
  const lines = declarations.split('\n').map((line) => {
    const text = /^ *\* ?(.*)$/.exec(line)?.[1]
    if (text === undefined || /^@/.test(text)) isExample = text === '@example'
    return isExample && text !== '@example' ? text : ''
  })
  return lines.join('\n')
}

/** Does not follow links: an example has a link to its packages. */
function find(folder, suffix) {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .flatMap((entry) => {
      if (entry.isDirectory()) return find(join(folder, entry.name), suffix)
      return entry.isFile() && entry.name.endsWith(suffix) ? [join(folder, entry.name)] : []
    })
    .map((path) => relative(root, join(root, path)).split(sep).join('/'))
}

function read(file) {
  return readFileSync(join(root, file), 'utf8').replaceAll('\r\n', '\n')
}
