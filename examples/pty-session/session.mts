// A command in its own terminal. Your terminal can attach to it and detach from it.

import type { ReadStream, WriteStream } from 'node:tty'
import type { OwnedTerminal, RunExit, Supervisor } from 'spawn-owned'

/** Ctrl-] */
const DETACH = 0x1d
/** Bytes of earlier output that `attach` shows. */
const TAIL = 64 * 1024

export interface SessionOptions {
  sessionId: string
  /** The idle timeout. Typed input also counts as output, because the terminal echoes it. */
  idleMs: number
  cols: number
  rows: number
}

/** The terminal of a user: `process` has this shape. */
export interface UserTerminal {
  stdin: ReadStream
  stdout: WriteStream
}

export class Session {
  /** Resolves when the whole tree is gone and all output was read. */
  readonly ended: Promise<RunExit>
  readonly #run: OwnedTerminal
  #tail: Buffer[] = []
  #tailLength = 0
  #screen: WriteStream | null = null

  constructor(
    supervisor: Supervisor,
    command: string,
    args: readonly string[],
    { sessionId, idleMs, cols, rows }: SessionOptions,
  ) {
    this.#run = supervisor.spawnOwned(command, args, {
      pty: { cols, rows, name: process.env.TERM },
      sessionId,
      noOutputTimeoutMs: idleMs,
    })
    this.#run.stdin.on('error', () => {})
    // Read also while detached: the command blocks if its output is not read.
    this.#run.stdout.on('data', (bytes: Buffer) => this.#show(bytes))
    const closed = new Promise((resolve) => this.#run.once('close', resolve))
    this.ended = this.#run.wait().then(async (exit) => {
      if (exit.reason !== 'spawn-error') await closed
      return exit
    })
  }

  get pid(): number | undefined {
    return this.#run.pid
  }

  cancel(): Promise<RunExit> {
    return this.#run.cancel()
  }

  /**
   * Connects your terminal until the session ends or you press Ctrl-]: `'ended'` or `'detached'`.
   */
  async attach({ stdin, stdout }: UserTerminal): Promise<'ended' | 'detached'> {
    const fit = () => this.#fit(stdout)
    for (const bytes of this.#tail) stdout.write(bytes)
    this.#screen = stdout
    fit()
    stdout.on('resize', fit)
    stdin.setRawMode(true)
    try {
      return await Promise.race([this.ended.then(() => 'ended' as const), this.#pass(stdin)])
    } finally {
      stdin.setRawMode(false)
      stdin.removeAllListeners('data').pause()
      stdout.off('resize', fit)
      this.#screen = null
      // The output may be paused because this terminal was slow.
      this.#run.stdout.resume()
    }
  }

  /** Forwards all input, Ctrl-C included. Resolves at the detach key. */
  #pass(stdin: ReadStream): Promise<'detached'> {
    return new Promise((resolve) => {
      stdin.on('data', (bytes: Buffer) => {
        const end = bytes.indexOf(DETACH)
        this.#run.stdin.write(end < 0 ? bytes : bytes.subarray(0, end))
        if (end >= 0) resolve('detached')
      })
      stdin.resume()
    })
  }

  #show(bytes: Buffer): void {
    this.#tail.push(bytes)
    this.#tailLength += bytes.length
    while (this.#tailLength - (this.#tail[0]?.length ?? 0) >= TAIL)
      this.#tailLength -= this.#tail.shift()?.length ?? 0
    const screen = this.#screen
    if (!screen || screen.write(bytes)) return
    this.#run.stdout.pause()
    screen.once('drain', () => this.#run.stdout.resume())
  }

  /** Sets the terminal's size. A full-screen program redraws when the size changes. */
  #fit({ columns, rows }: WriteStream): void {
    try {
      this.#run.resize(columns, rows)
    } catch {
      // The session has already ended.
    }
  }
}
