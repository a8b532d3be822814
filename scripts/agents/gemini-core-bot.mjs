// A bot that knows nothing of ownership, and runs a command as the shell tool of Gemini CLI does. argv: the URL of the library, the
// command. At `abort` on stdin it aborts the tool call, and prints the result. It stays until the test ends it.
import { createInterface } from 'node:readline'

const [url, command] = process.argv.slice(2)
const { NoopSandboxManager, ShellExecutionService } = await import(url)

const toolCall = new AbortController()
const settings = {
  sanitizationConfig: { allowedEnvironmentVariables: [], blockedEnvironmentVariables: [] },
  sandboxManager: new NoopSandboxManager(),
}
const handle = await ShellExecutionService.execute(
  ...[command, process.cwd(), () => {}, toolCall.signal, true, settings],
)
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'abort') toolCall.abort()
  const { aborted, executionMethod } = await handle.result
  console.log(JSON.stringify({ aborted, executionMethod }))
}
