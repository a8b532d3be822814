// The stdio client transport of the MCP SDK, with owned runs.

import { once } from 'node:events'
import { PassThrough, type Readable, type Stream } from 'node:stream'
import type { OwnedProcess, SpawnOwnedOptions } from '../../index.js'
import type { StdioServerParameters } from '../../types/mcp.js'
import { spawnOwned } from '../index.js'
import { codedError } from '../util/errors.js'
import { MCP_SERVER } from '../util/option-keys.js'
import { refuseMisspelled } from '../util/read-options.js'
import { within } from '../util/timeouts.js'
import { duration } from '../util/validation.js'
import { isWindows } from '../util/windows.js'
import { endStdioServer } from './end-stdio-server.js'
import { forWindows, loadSdk, type Message, type Sdk } from './mcp-sdk.js'

const CLOSE_MS = 2000
/** The grace of a server that was only started to learn its version, as in the SDK. */
const DISPOSE_MS = 1000

/** A server, from its start until no process of it exists. */
interface Connection {
  readonly run: OwnedProcess
  /** The end of the server. All callers share it. */
  end?: Promise<void>
}

// Without `sessionId`, although a run has one: for the SDK it is the session of the protocol, and
// would mean that the transport is connected.
export class StdioClientTransport {
  static readonly name = 'StdioClientTransport'

  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: Message) => void

  #server: StdioServerParameters
  #closeMs: number
  #stderr: PassThrough | null
  #starting: Promise<void> | undefined
  #connection: Connection | undefined
  #run: OwnedProcess | null = null
  #sdk: Sdk | undefined

  constructor(server: StdioServerParameters) {
    // A copy, so that every value is read once, even if the transport is started several times.
    this.#server = { ...server }
    refuseMisspelled(this.#server, 'StdioClientTransport', MCP_SERVER, 'server')
    const { closeMs, stderr } = this.#server
    this.#closeMs = duration(closeMs, 'server.closeMs') ?? CLOSE_MS
    this.#stderr = stderr === 'pipe' || stderr === 'overlapped' ? new PassThrough() : null
  }

  get run(): OwnedProcess | null {
    return this.#run
  }

  get pid(): number | null {
    return this.#connection?.run.pid ?? null
  }

  get stderr(): Stream | null {
    return this.#stderr
  }

  async start(): Promise<void> {
    if (this.#starting || this.#connection) {
      throw new Error(
        'StdioClientTransport already started! If using Client class, note that connect() calls start() automatically.',
      )
    }
    this.#starting = this.#start()
    try {
      await this.#starting
    } finally {
      this.#starting = undefined
    }
  }

  async send(message: Message): Promise<void> {
    const stdin = this.#connection?.run.stdin
    if (!this.#sdk || !stdin?.writable) throw new Error('Not connected')
    const text = this.#sdk.serializeMessage(message)
    // Not `drain`: it never comes after the end of the server.
    await new Promise<void>((resolve, reject) => {
      stdin.write(text, (error) => (error ? reject(error) : resolve()))
    })
  }

  async close(): Promise<void> {
    // A close while the SDK is loading must close the server that starts after that.
    if (!this.#connection) await this.#starting?.catch(() => {})
    if (this.#connection) await this.#end(this.#connection)
  }

  /**
   * The parameters, under the name of version 2 of the SDK.
   *
   * To learn which revision of the protocol a server speaks, its Client can start the server a
   * second time: with `constructor`, these parameters and `_dispose`. An old server may exit when it
   * gets an unknown request, so the Client does not try it with the first process.
   */
  get _serverParams(): StdioServerParameters {
    return this.#server
  }

  /** Terminates the server at once, for the second process of the Client. */
  async _dispose(): Promise<void> {
    if (!this.#connection) await this.#starting?.catch(() => {})
    if (!this.#connection) return
    void this.#connection.run.cancel({ graceMs: DISPOSE_MS })
    await this.#end(this.#connection)
  }

  async #start(): Promise<void> {
    const sdk = await loadSdk()
    this.#sdk = sdk
    const run = this.#spawn(sdk)
    this.#run = run
    // A run that waits for its scope can be cancelled. Then it emits only `close`. Listen before
    // the first use of the streams: Bun can run the next tick while it creates them.
    const started = Promise.race([once(run, 'spawn'), once(run, 'close')])
    started.catch(() => {})
    const connection: Connection = { run }
    this.#connection = connection
    if (this.#stderr?.writableEnded) this.#stderr = new PassThrough()
    this.#listen(connection, new sdk.ReadBuffer({ maxBufferSize: this.#server.maxBufferSize }))
    try {
      await started
      if (run.pid === undefined) throw new Error('The server was cancelled before it was started')
    } catch (error) {
      await this.#end(connection)
      throw error
    }
  }

  #spawn(sdk: Sdk): OwnedProcess {
    const {
      command,
      args = [],
      env: added,
      stderr,
      maxBufferSize,
      closeMs,
      supervisor,
      ...rest
    } = this.#server
    const options: SpawnOwnedOptions = {
      commandPreview: [command, ...args].join(' '),
      onLeaderExit: 'keep',
      ...rest,
      env: { ...sdk.getDefaultEnvironment(), ...added },
      stdio: ['pipe', 'pipe', stderr ?? 'inherit'],
      windowsHide: isWindows,
    }
    const spawn = supervisor?.spawnOwned ?? spawnOwned
    if (!isWindows) return spawn(command, args, options)
    const { file, argv, verbatim } = forWindows(command, args, options)
    return spawn(file, argv, { ...options, windowsVerbatimArguments: verbatim })
  }

  #listen(connection: Connection, buffer: InstanceType<Sdk['ReadBuffer']>): void {
    const { run } = connection
    const fail = (error: Error) => this.onerror?.(error)
    const end = () => void this.#end(connection).catch(fail)
    run.on('error', fail)
    run.stdin?.on('error', fail)
    run.stdout?.on('error', fail).on('data', (chunk: Buffer) => {
      try {
        buffer.append(chunk)
      } catch (error) {
        fail(error as Error)
        end()
      }
      this.#read(buffer)
    })
    if (this.#stderr) run.stderr?.pipe(this.#stderr)
    // Three events mean that the server is gone: the end of its stdout, a failed command, and the
    // end of the tree. A command that exits with 0 can be a wrapper, and its server continues.
    run.stdout?.once('end', end)
    run.once('exit', (code) => code !== 0 && end())
    run.wait().then(end)
  }

  #read(buffer: InstanceType<Sdk['ReadBuffer']>): void {
    for (;;) {
      try {
        const message = buffer.readMessage()
        if (message === null) return
        this.onmessage?.(message)
      } catch (error) {
        this.onerror?.(error as Error)
      }
    }
  }

  #end(connection: Connection): Promise<void> {
    connection.end ??= this.#endNow(connection)
    return connection.end
  }

  async #endNow(connection: Connection): Promise<void> {
    const { run } = connection
    const { survivors } = await endStdioServer(run, this.#closeMs)
    // Read all output before `onclose`. But a survivor can hold the other end of the pipe forever.
    if (run.stdout) await (survivors.length === 0 ? ended(run.stdout) : this.#drainBriefly(run.stdout))
    this.#connection = undefined
    this.onclose?.()
    if (survivors.length === 0) return
    const who = survivors.map(({ pid, command, why }) => `${pid} (${command}): ${why}`).join('; ')
    throw codedError(
      Error,
      'ERR_OWNED_CANCEL_FAILED',
      `Some processes of the server could not be terminated: ${who}`,
    )
  }

  async #drainBriefly(stdout: Readable): Promise<void> {
    await within(ended(stdout), this.#closeMs, undefined)
    stdout.destroy()
  }
}

/** Resolves when the stream is closed. */
async function ended(stream: Readable): Promise<void> {
  if (!stream.closed) await new Promise((resolve) => stream.once('close', resolve))
}
