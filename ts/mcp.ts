// The stdio client transport of the MCP SDK over an owned run: change the import, keep the code.

import { once } from 'node:events'
import { PassThrough, type Readable, type Stream } from 'node:stream'
import type { OwnedProcess, RunExit, SpawnOwnedOptions } from '../index.js'
import type { StdioServerParameters } from '../mcp.js'
import { duration } from './checks.js'
import { codedError } from './errors.js'
import { spawnOwned } from './index.js'
import { forWindows, loadSdk, type Message, type Sdk } from './mcp-sdk.js'
import { within } from './waiting.js'
import { isWindows } from './windows.js'

const CLOSE_MS = 2000

/** A server that was started, until nothing of it exists. */
interface Connection {
  readonly run: OwnedProcess
  /** The one end that it has, whoever has asked for it. */
  end?: Promise<void>
}

// It has no `sessionId`, although runs do: to the SDK that is one of the protocol's, and would mean that it is connected already.
class StdioClientTransport {
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
    this.#server = server
    this.#closeMs = duration(server.closeMs, 'server.closeMs') ?? CLOSE_MS
    this.#stderr = server.stderr === 'pipe' || server.stderr === 'overlapped' ? new PassThrough() : null
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
    // Not `drain`, for which one would wait in vain when the server is gone.
    await new Promise<void>((resolve, reject) => {
      stdin.write(text, (error) => (error ? reject(error) : resolve()))
    })
  }

  async close(): Promise<void> {
    // Who closes while the SDK is being loaded closes what is about to be started.
    if (!this.#connection) await this.#starting?.catch(() => {})
    if (this.#connection) await this.#end(this.#connection)
  }

  async #start(): Promise<void> {
    const sdk = await loadSdk()
    this.#sdk = sdk
    const run = this.#spawn(sdk)
    this.#run = run
    // One that waits for its scope may be called off; then `close` is all that is heard of it. Asked for before the streams are touched:
    // Bun may go on with what waits for the next tick while it makes them.
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
    // Three ways to learn that the server is gone: nobody has its stdout open any more, the command has failed, and everything is over.
    // A command that was successful may have been a wrapper, whose server goes on.
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
    run.stdin?.end()
    const { survivors } = await this.#leaves(run)
    // What it has said at last is heard before its end; but who could not be ended may hold the other end for ever.
    if (run.stdout) await (survivors.length === 0 ? ended(run.stdout) : this.#fallsSilent(run.stdout))
    this.#connection = undefined
    this.onclose?.()
    if (survivors.length === 0) return
    const who = survivors.map(({ pid, command, why }) => `${pid} (${command}): ${why}`).join('; ')
    throw codedError(Error, 'ERR_OWNED_CANCEL_FAILED', `Not all of the server could be ended: ${who}`)
  }

  async #fallsSilent(stdout: Readable): Promise<void> {
    await within(ended(stdout), this.#closeMs, undefined)
    stdout.destroy()
  }

  /** By itself, if it does so in time. */
  async #leaves(run: OwnedProcess): Promise<RunExit> {
    const { signalCode, exitCode } = run
    // What a server that has failed leaves behind has nobody to tell it that the conversation is over.
    const failed = signalCode !== null || (exitCode !== null && exitCode !== 0)
    if (failed) return await run.cancel({ reason: signalCode ? 'signal' : 'exit' })
    await within(run.wait(), this.#closeMs, undefined)
    return await run.cancel()
  }
}

/** No more is going to be read from it. */
async function ended(stream: Readable): Promise<void> {
  if (!stream.closed) await new Promise((resolve) => stream.once('close', resolve))
}

export = { StdioClientTransport }
