// The names that processes are suspected for. Which names a process has, the native side says (src/reap/suspects/names.rs).

import { types } from 'node:util'
import { invalidType, invalidValue } from './errors.js'

/** CLI agents, by the names of their programs and packages, and MCP servers. docs/orphans.md has the same list. */
export const suspectPatterns: readonly string[] = Object.freeze([
  'claude',
  'claude-code',
  'codex',
  'opencode',
  'opencode-ai',
  'gemini',
  'gemini-cli',
  'aider',
  'crush',
  'amp',
  'mcp',
  'mcp-*',
  'mcp_*',
  '*-mcp',
  '*-mcp-server',
  '@modelcontextprotocol/*',
])

/** The pattern that one of the names matches, as people have written it. */
export type Matcher = (names: readonly string[]) => string | undefined

export function readPatterns(given: unknown, name = 'options.patterns'): Matcher {
  if (given !== undefined && !Array.isArray(given)) throw invalidType(name, 'an array', given)
  const patterns = ((given ?? suspectPatterns) as unknown[]).map((pattern, index) =>
    readPattern(pattern, `${name}[${index}]`),
  )
  return (names) => patterns.find(({ matches }) => names.some(matches))?.text
}

function readPattern(pattern: unknown, name: string): { text: string; matches: (name: string) => boolean } {
  if (types.isRegExp(pattern)) {
    // One that remembers where it was, with the flag g or y, would skip every other name.
    const stateless = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ''))
    return { text: String(pattern), matches: (it) => stateless.test(it) }
  }
  if (typeof pattern !== 'string') throw invalidType(name, 'of type string or a RegExp', pattern)
  if (pattern.replaceAll('*', '') === '')
    throw invalidValue(name, pattern, 'must be a name, and not match everybody')
  const whole = new RegExp(`^${pattern.split('*').map(escaped).join('.*')}$`, 'is')
  return { text: pattern, matches: (it) => whole.test(it) }
}

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
