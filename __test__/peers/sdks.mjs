// How a bot uses each SDK that starts its agent itself, as its own documentation has it. `start` resolves when the agent has a prompt, with
// the SDK's own way to end it.
import { fileURLToPath } from 'node:url'

export const standInFor = (name) => fileURLToPath(new URL(`stand-in-${name}.mjs`, import.meta.url))

/** Resolves when the turn is over, for whatever reason. */
async function readAll(events) {
  try {
    for await (const { type } of events) console.log(type)
    console.log('turn: complete')
  } catch (error) {
    console.log(`turn: ${error.name}`)
  }
}

const copilot = async () => {
  const { approveAll, CopilotClient, RuntimeConnection } = await import('@github/copilot-sdk')
  const client = new CopilotClient({
    connection: RuntimeConnection.forStdio({ path: standInFor('copilot') }),
  })
  const session = await client.createSession({ onPermissionRequest: approveAll })
  await session.send('work')
  return client
}

export const sdks = {
  async codex() {
    const { Codex } = await import('@openai/codex-sdk')
    const codex = new Codex({ codexPathOverride: standInFor('codex') })
    const turn = new AbortController()
    const { events } = await codex.startThread().runStreamed('work', { signal: turn.signal })
    // The SDK starts its agent with the first read.
    await events.next()
    const rest = readAll(events)
    return async () => {
      turn.abort()
      await rest
    }
  },

  /** The SDK finds its agent in the PATH. */
  async opencode() {
    const { createOpencode } = await import('@opencode-ai/sdk')
    const { client, server } = await createOpencode({ port: 0, timeout: 30_000 })
    const { data: session } = await client.session.create()
    const prompt = { path: { id: session.id }, body: { parts: [{ type: 'text', text: 'work' }] } }
    client.session.prompt(prompt).catch(() => {})
    return () => server.close()
  },

  async copilot() {
    const client = await copilot()
    return () => client.stop()
  },

  async 'copilot-forced'() {
    const client = await copilot()
    return () => client.forceStop()
  },
}
