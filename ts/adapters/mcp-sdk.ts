// The parts of the MCP SDK that spawn-owned/mcp uses: of @modelcontextprotocol/sdk (version 1), or of
// @modelcontextprotocol/client (version 2).
//
// The bot installs the SDK. Version 1 is loaded when the first server is started. Of version 2 only
// cross-spawn is loaded, on Windows.

import { createRequire } from 'node:module'
import { codedError } from '../util/errors.js'
import { type Message, ReadBuffer, serializeMessage } from './json-rpc-lines.js'

export type { Message } from './json-rpc-lines.js'

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
const NAME_2 = '@modelcontextprotocol/client'

/**
 * Returns what a transport needs: our own framing for version 2, the SDK's parts for version 1.
 *
 * If both are installed, version 1 is often there because of another package. So it is only used if
 * the bot has loaded it. Both have the same format of messages.
 */
export async function loadSdk(): Promise<Sdk> {
  const isVersion2 = find(`${NAME_2}/stdio`) !== undefined
  if (isVersion2 && !isLoadedAsCommonJs()) return { ReadBuffer, serializeMessage, getDefaultEnvironment }
  if (find(`${NAME}/types.js`) !== undefined) return await loadVersion1()
  const message = `spawn-owned/mcp needs ${NAME}, version 1, or ${NAME_2}, version 2, and cannot find them. Run: npm install ${NAME_2}`
  throw codedError(Error, 'ERR_OWNED_PEER_MISSING', message)
}

async function loadVersion1(): Promise<Sdk> {
  const load = isLoadedAsCommonJs() ? require : (path: string) => import(path)
  const [shared, client] = await Promise.all([
    load(`${NAME}/shared/stdio.js`),
    load(`${NAME}/client/stdio.js`),
  ])
  return { ...shared, ...client }
}

/**
 * Whether the bot has loaded the CommonJS variant of version 1.
 *
 * The variant that is already loaded costs nothing. The other one costs about 100 ms and 6 MB.
 */
function isLoadedAsCommonJs(): boolean {
  const path = find(`${NAME}/types.js`)
  return path !== undefined && path in require.cache
}

/** Returns the path of a module, or `undefined` if it is not installed. */
function find(module: string): string | undefined {
  try {
    return require.resolve(module)
  } catch {
    return undefined
  }
}

/** Variables that a server inherits: those of the SDK. */
const INHERITED =
  process.platform === 'win32'
    ? [
        ...['APPDATA', 'COMSPEC', 'HOMEDRIVE', 'HOMEPATH', 'LOCALAPPDATA', 'PATH', 'PATHEXT'],
        ...['PROCESSOR_ARCHITECTURE', 'PROGRAMDATA', 'PROGRAMFILES', 'PROGRAMFILES(X86)', 'PROGRAMW6432'],
        ...['SYSTEMDRIVE', 'SYSTEMROOT', 'TEMP', 'USERNAME', 'USERPROFILE', 'WINDIR'],
      ]
    : ['HOME', 'LOGNAME', 'PATH', 'SHELL', 'TERM', 'USER']

/** Returns the variables that a server inherits, without exported shell functions. */
export function getDefaultEnvironment(): Record<string, string> {
  const values = INHERITED.map((name) => [name, process.env[name]] as const)
  return Object.fromEntries(
    values.filter((entry): entry is [string, string] => entry[1] !== undefined && !entry[1].startsWith('()')),
  )
}

/** The arguments of `spawnOwned` on Windows. */
export interface CommandLine {
  file: string
  argv: string[]
  /** The arguments are already quoted for cmd.exe. */
  verbatim: boolean
}

/**
 * Returns how to start a command on Windows.
 *
 * `npx` is a batch file there, and only cmd.exe can run it. cross-spawn finds and quotes it. The
 * SDK starts its servers with cross-spawn too, so every server that the SDK can start works here.
 */
export function forWindows(command: string, args: readonly string[], options: object): CommandLine {
  const requireFromSdk = createRequire(find(`${NAME_2}/stdio`) ?? require.resolve(`${NAME}/client/stdio.js`))
  const parsed = requireFromSdk('cross-spawn')._parse(command, args, options)
  // Start a command that does not exist directly, to get ENOENT. cmd.exe would start, and print an
  // error.
  if (!parsed.file) return { file: command, argv: [...args], verbatim: false }
  return {
    file: parsed.command,
    argv: parsed.args,
    verbatim: parsed.options.windowsVerbatimArguments === true,
  }
}
