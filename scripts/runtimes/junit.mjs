// Reads JUnit XML, which the test runners of Node, Bun and Deno can all write. Pure.

/** Counts tests, not suites. */
export function readResults(xml) {
  const cases = [...xml.matchAll(/<testcase\b([^>]*?)(\/>|>([\s\S]*?)<\/testcase>)/g)]
    .map(([, attributes, , body = '']) => ({ name: nameIn(attributes), body }))
    .filter(({ name }, _, all) => !all.some((other) => other.name.startsWith(`${name} > `)))
  const count = (tag) => cases.filter(({ body }) => body.includes(`<${tag}`)).length
  const [failed, skipped] = [count('failure') + count('error'), count('skipped')]
  return { passed: cases.length - failed - skipped, failed, skipped }
}

const nameIn = (attributes) => plain(/\bname="([^"]*)"/.exec(attributes)?.[1] ?? '')

const entities = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }
const plain = (text) => text.replace(/&(lt|gt|quot|apos|amp);/g, (_, entity) => entities[entity])
