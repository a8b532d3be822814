// `spawn-owned/mcp`: the stdio client transport of the MCP SDK over an owned run.

import { StdioClientTransport } from './adapters/mcp-transport.js'

export = { StdioClientTransport }
