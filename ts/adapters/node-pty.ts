// The interface of node-pty, with owned runs. docs/pty.md lists the differences.

import { EventEmitter } from 'node:events'
import { constants } from 'node:os'
import type { Writable } from 'node:stream'
import type { OwnedProcess, OwnedTerminal, SpawnOwnedOptions } from '../../index.js'
import type { IDisposable, IEvent, IPtyForkOptions } from '../../types/node-pty.js'
import { spawnOwned } from '../index.js'
import { NODE_PTY, NODE_PTY_ONLY } from '../util/option-keys.js'
import { refuseMisspelled } from '../util/read-options.js'
import { isWindows } from '../util/windows.js'

const DEFAULTS = { file: isWindows ? 'cmd.exe' : 'sh', name: 'xterm', cols: 80, rows: 24 }
const XOFF = '\x13'
const XON = '\x11'

/** The variables that describe the terminal or the multiplexer of the bot. */
const OF_THE_BOT = ['TMUX', 'TMUX_PANE', 'STY', 'WINDOW', 'WINDOWID', 'TERMCAP', 'COLUMNS', 'LINES']

/** The options that node-pty checks, with their types. */
const TYPES = {
  ...{ name: 'string', cols: 'number', rows: 'number', cwd: 'string' },
  ...{ env: 'object', uid: 'number', gid: 'number', encoding: 'string' },
} as const

class Terminal extends EventEmitter {
  static override readonly name = 'Terminal'

  readonly run: OwnedProcess
  handleFlowControl: boolean

  #child: OwnedTerminal
  #file: string
  #size: { cols: number; rows: number }
  #encoding: BufferEncoding | null
  #pauses: string
  #resumes: string

  constructor(file: string, args: readonly string[], options: IPtyForkOptions) {
    super()
    this.#file = file
    this.#size = { cols: options.cols || DEFAULTS.cols, rows: options.rows || DEFAULTS.rows }
    this.#encoding = options.encoding === undefined ? 'utf8' : (options.encoding as BufferEncoding | null)
    this.handleFlowControl = Boolean(options.handleFlowControl)
    this.#pauses = options.flowControlPause || XOFF
    this.#resumes = options.flowControlResume || XON
    this.#child = spawnOwned(file, args, this.#ownedOptions(options))
    this.run = this.#child
    this.#listen()
  }

  get pid(): number {
    // NaN for a command that could not be started: it cannot be mistaken for a PID.
    return this.#child.pid ?? Number.NaN
  }

  get cols(): number {
    return this.#size.cols
  }

  get rows(): number {
    return this.#size.rows
  }

  get process(): string {
    return (this.#child as unknown as { foreground?: string }).foreground ?? this.#file
  }

  get onData(): IEvent<string> {
    return (listener) => this.#subscribe('data', listener)
  }

  get onExit(): IEvent<{ exitCode: number; signal?: number }> {
    return (listener) => this.#subscribe('exit', (exitCode, signal) => listener({ exitCode, signal }))
  }

  write(data: string | Buffer): void {
    if (this.handleFlowControl && data === this.#pauses) this.pause()
    else if (this.handleFlowControl && data === this.#resumes) this.resume()
    else if (typeof data !== 'string') this.#input().write(data)
    else this.#input().write(data, this.#encoding ?? 'utf8')
  }

  resize(cols: number, rows: number): void {
    if (!(cols > 0 && rows > 0 && Number.isFinite(cols) && Number.isFinite(rows)))
      throw new Error('resizing must be done using positive cols and rows')
    try {
      this.#child.resize(Math.floor(cols), Math.floor(rows))
    } catch (error) {
      // A user can resize a window right after the command has exited.
      if ((error as NodeJS.ErrnoException).code !== 'ERR_OWNED_TERMINAL_GONE') throw error
    }
    this.#size = { cols, rows }
  }

  clear(): void {}

  kill(signal?: string): void {
    try {
      this.#child.kill((signal ?? 'SIGHUP') as NodeJS.Signals)
    } catch {
      // As in node-pty, an unknown signal is ignored.
    }
  }

  pause(): void {
    this.#child.stdout.pause()
  }

  resume(): void {
    this.#child.stdout.resume()
  }

  // ---- not in the types of node-pty, but used ---------------------------------------------------

  destroy(): void {
    this.#child.stdout.destroy()
    this.kill('SIGHUP')
  }

  end(data?: string): void {
    if (data !== undefined) this.write(data)
    this.#input().end()
  }

  pipe<T extends NodeJS.WritableStream>(destination: T, options?: { end?: boolean }): T {
    return this.#child.stdout.pipe(destination, options)
  }

  setEncoding(encoding: BufferEncoding): void {
    this.#child.stdout.setEncoding(encoding)
  }

  /**
   * Returns stdin. It is created at the first use: a stream costs more than the rest of a spawn.
   */
  #input(): Writable {
    const { stdin } = this.#child
    // As in node-pty, a write after the end of the command is ignored.
    if (stdin.listenerCount('error') === 0) stdin.on('error', () => {})
    return stdin
  }

  #subscribe(event: string, listener: (...args: never[]) => unknown): IDisposable {
    const listening = listener as (...args: unknown[]) => void
    this.on(event, listening)
    return { dispose: () => void this.off(event, listening) }
  }

  #ownedOptions(options: IPtyForkOptions): SpawnOwnedOptions & { pty: object } {
    const given = Object.entries(options).filter(([name]) => !NODE_PTY_ONLY.has(name))
    const cwd = options.cwd || process.cwd()
    const env = environment(options.env, cwd)
    const name = options.name || (env ?? process.env).TERM || DEFAULTS.name
    return { ...Object.fromEntries(given), cwd, env, pty: { ...this.#size, name } }
  }

  #listen(): void {
    const { stdout } = this.#child
    if (this.#encoding !== null) stdout.setEncoding(this.#encoding)
    stdout.on('data', (data) => this.emit('data', data))
    stdout.on('error', () => {})
    let failed = false
    this.#child.on('error', (error) => {
      failed = true
      // In node-pty the forked child writes the error to its terminal.
      const text = `${error.message}\r\n`
      this.emit(
        'data',
        this.#encoding === null ? Buffer.from(text) : Buffer.from(text).toString(this.#encoding),
      )
    })
    // 'close' instead of 'exit', because all output comes before the exit.
    this.#child.on('close', (code, signal) => {
      this.emit('close')
      this.emit('exit', failed ? 1 : (code ?? 0), signal === null ? 0 : constants.signals[signal])
    })
  }
}

/**
 * Returns the environment, or undefined for the unchanged one of the bot, which is faster to read.
 */
function environment(given: NodeJS.ProcessEnv | undefined, cwd: string): NodeJS.ProcessEnv | undefined {
  const own = given === undefined || given === process.env
  if (own && process.env.PWD === cwd && !OF_THE_BOT.some((name) => name in process.env)) return undefined
  const env: NodeJS.ProcessEnv = { ...(given ?? process.env), PWD: cwd }
  if (own) for (const name of OF_THE_BOT) delete env[name]
  return env
}

export function spawn(file?: string, args?: readonly string[] | string, options?: IPtyForkOptions): Terminal {
  if (typeof args === 'string') throw new Error('args as a string is not supported on unix.')
  // A copy, so that every value is read once.
  const given: IPtyForkOptions = { ...options }
  refuseMisspelled(given, 'spawn', NODE_PTY)
  for (const [name, type] of Object.entries(TYPES)) {
    const value = given[name as keyof typeof TYPES]
    if (value && typeof value !== type) throw new Error(`${name} must be a ${type} (not a ${typeof value})`)
  }
  return new Terminal(file || DEFAULTS.file, args ?? [], given)
}
