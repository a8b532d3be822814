export * from './mcp.js'
