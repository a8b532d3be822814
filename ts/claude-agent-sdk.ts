// `spawn-owned/claude-agent-sdk`: the process-spawn hook of the Claude Agent SDK over an owned run.

export { createSpawner, spawnClaudeCodeProcess } from './adapters/claude-agent-sdk.js'
