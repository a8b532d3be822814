// MCP servers, and clients with the transport of this package.
import { StdioClientTransport } from 'spawn-owned/mcp'
import { FOR_EVER } from './prelude.mjs'

/** A request that every server answers. */
export const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }

/** The parameters of a server that a shell starts. */
export const sh = (line, ...args) => ({ command: 'sh', args: ['-c', line, 'sh', ...args], stderr: 'ignore' })

/** A transport that is closed with the test, and the calls of its callbacks. */
export function transport(t, parameters, Transport = StdioClientTransport) {
  const it = new Transport({ graceMs: FOR_EVER, ...parameters })
  const calls = { closed: 0, errors: [], messages: [] }
  it.onclose = () => calls.closed++
  it.onerror = (error) => calls.errors.push(error)
  it.onmessage = (message) => calls.messages.push(message)
  t.after(() => it.run?.cancel({ signal: 'SIGKILL' }))
  return Object.assign(it, { calls })
}
