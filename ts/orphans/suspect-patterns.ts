// The patterns of names that make a process a suspect. Pure.
//
// The native side determines the names of a process (src/reap/suspects/names.rs).

import { types } from 'node:util'
import { invalidType, invalidValue } from '../util/errors.js'

/** The programs and packages of CLI agents, and MCP servers. docs/orphans.md has the same list. */
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

/** Returns the text of the first pattern that matches one of the names. */
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
    // With the flag g or y, an expression stores its last position, and would skip names.
    const stateless = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ''))
    return { text: String(pattern), matches: (it) => stateless.test(it) }
  }
  if (typeof pattern !== 'string') throw invalidType(name, 'of type string or a RegExp', pattern)
  if (pattern.replaceAll('*', '') === '')
    throw invalidValue(
      name,
      pattern,
      'must contain a character other than "*", because it would match all processes',
    )
  const whole = new RegExp(`^${pattern.split('*').map(escaped).join('.*')}$`, 'is')
  return { text: pattern, matches: (it) => whole.test(it) }
}

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
