// The agents that bots run, from npm, each in one version. Observed without a network and without
// an account.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../tools.mjs'

const { arch } = process
const folder = join(root, 'target', 'agents')

const initialize = (params) => `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })}\n`
const clientInfo = { name: 'spawn-owned', version: '1' }
const mcp = initialize({ protocolVersion: '2025-03-26', capabilities: {}, clientInfo })
const acp = initialize({ protocolVersion: 1, clientCapabilities: {} })

/** The answer to the first request. */
const ANSWER = /"id":\s*1\b.*"result"|"result".*"id":\s*1\b/s

/**
 * @typedef Agent
 * @property {string} spec         the package with the program for this processor
 * @property {string} version
 * @property {string} file         the program in it
 * @property {boolean} [isScript]  it is run by Node
 * @property {Record<string, { asks?: string, says: RegExp }>} servers
 *   its server modes: the request it gets, and its answer
 */

/** @type {Record<string, Agent>} */
const list = {
  codex: {
    spec: `@openai/codex@0.169.0-linux-${arch}`,
    version: '0.169.0',
    file: `vendor/${arch === 'arm64' ? 'aarch64' : 'x86_64'}-unknown-linux-musl/bin/codex`,
    servers: { 'app-server': { asks: initialize({ clientInfo }), says: ANSWER } },
  },
  claude: {
    spec: `@anthropic-ai/claude-code-linux-${arch}@2.1.326`,
    version: '2.1.326',
    file: 'claude',
    servers: { 'mcp serve': { asks: mcp, says: ANSWER } },
  },
  gemini: {
    spec: '@google/gemini-cli@0.61.0',
    version: '0.61.0',
    file: 'bundle/gemini.js',
    isScript: true,
    servers: { '--acp': { asks: acp, says: ANSWER } },
  },
  opencode: {
    spec: `opencode-linux-${arch}@1.18.33`,
    version: '1.18.33',
    file: 'bin/opencode',
    servers: {
      acp: { asks: acp, says: ANSWER },
      'serve --port=0': { says: /listening on http/ },
    },
  },
}

export const agents = Object.entries(list).map(([name, { spec, version, file, isScript, servers }]) => {
  const place = join(folder, `${name}-${version}`)
  const program = join(place, file)
  const command = isScript ? [process.execPath, program] : [program]
  return { name, spec, version, place, program, command, servers, isThere: existsSync(program) }
})

/** Their homes. Not in the temporary folder, which some agents reject as a home. */
export const homes = folder
