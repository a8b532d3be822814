// A bot with an agent that works until the test ends it. argv: 'owned' or 'stock', the environment of
// the agent.
import { query } from '@anthropic-ai/claude-agent-sdk'
import { spawnClaudeCodeProcess } from 'spawn-owned/claude-agent-sdk'

const [how, env] = process.argv.slice(2)
const options = {
  env: JSON.parse(env),
  pathToClaudeCodeExecutable: new URL('stand-in-claude.mjs', import.meta.url).pathname,
  ...(how === 'owned' && { spawnClaudeCodeProcess }),
}
for await (const { type } of query({ prompt: 'work', options })) process.stdout.write(`${type}\n`)
