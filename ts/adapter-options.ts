// What the adapters need to read their options: one file in dist/, instead of a copy in each adapter.
export { ACP_AGENT, AGENT_SPAWNER, MCP_SERVER, NODE_PTY, NODE_PTY_ONLY } from './util/option-keys.js'
export { readOptions, refuseMisspelled } from './util/read-options.js'
