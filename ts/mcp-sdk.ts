// What spawn-owned/mcp has of @modelcontextprotocol/sdk, which is the bot's own: it is loaded when a server is started, not before.

import { createRequire } from 'node:module'
import { codedError } from './errors.js'

/** Its messages are its own affair. */
export type Message = object

export interface Sdk {
  ReadBuffer: new (options: {
    maxBufferSize?: number | undefined
  }) => {
    append(chunk: Buffer): void
    readMessage(): Message | null
    clear(): void
  }
  serializeMessage(message: Message): string
  getDefaultEnvironment(): Record<string, string>
}

const NAME = '@modelcontextprotocol/sdk'

export async function loadSdk(): Promise<Sdk> {
  try {
    const load = isLoadedAsCommonJs() ? require : (path: string) => import(path)
    const [framing, client] = await Promise.all([
      load(`${NAME}/shared/stdio.js`),
      load(`${NAME}/client/stdio.js`),
    ])
    return { ...framing, ...client }
  } catch (error) {
    if (!/MODULE_NOT_FOUND$/.test((error as NodeJS.ErrnoException).code ?? '')) throw error
    const message = `spawn-owned/mcp needs ${NAME}, version 1, which cannot be found from here: npm install ${NAME}`
    throw Object.assign(codedError(Error, 'ERR_OWNED_PEER_MISSING', message), { cause: error })
  }
}

/** It comes in two kinds. The one that the bot has anyway costs nothing; the other one some 100 ms and 6 MB. */
function isLoadedAsCommonJs(): boolean {
  return require.resolve(`${NAME}/types.js`) in require.cache
}

/** What `spawnOwned` is told on Windows. */
export interface CommandLine {
  file: string
  argv: string[]
  /** The arguments are quoted already, for cmd.exe. */
  verbatim: boolean
}

/**
 * On Windows `npx` is a batch file, which only cmd.exe can run. It is found and quoted as by cross-spawn, which the SDK itself starts its
 * servers with: whatever starts there starts here.
 */
export function forWindows(command: string, args: readonly string[], options: object): CommandLine {
  const ofTheSdk = createRequire(require.resolve(`${NAME}/client/stdio.js`))
  const parsed = ofTheSdk('cross-spawn')._parse(command, args, options)
  // What is nowhere is not started by way of cmd.exe, which would be started and complain: the system's own error is ENOENT.
  if (!parsed.file) return { file: command, argv: [...args], verbatim: false }
  return {
    file: parsed.command,
    argv: parsed.args,
    verbatim: parsed.options.windowsVerbatimArguments === true,
  }
}
