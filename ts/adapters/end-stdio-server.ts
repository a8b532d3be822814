// The end of a server that talks over stdio: an MCP server, or an ACP agent.

import type { OwnedProcess, RunExit } from '../../index.js'
import { within } from '../util/timeouts.js'

/**
 * Closes the stdin of a server and waits for it to exit by itself, at most `closeMs`. Then
 * terminates it. Resolves when its tree is gone.
 */
export async function endStdioServer(run: OwnedProcess, closeMs: number): Promise<RunExit> {
  run.stdin?.end()
  const { signalCode, exitCode } = run
  // The processes that a failed server leaves do not notice that stdin was closed.
  const failed = signalCode !== null || (exitCode !== null && exitCode !== 0)
  if (failed) return await run.cancel({ reason: signalCode ? 'signal' : 'exit' })
  await within(run.wait(), closeMs, undefined)
  return await run.cancel()
}
