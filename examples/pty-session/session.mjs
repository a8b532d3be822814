// A command in a terminal of its own, to which yours can be attached, and from which it can be detached.

/** Ctrl-] */
const DETACH = 0x1d
/** How much of what it has said is shown to who attaches. */
const TAIL = 64 * 1024

export class Session {
  #run
  #tail = []
  #tailLength = 0
  #screen = null

  /** `idleMs`: how long it may be silent. What is typed counts, too, because it is echoed. */
  constructor(supervisor, command, args, { sessionId, idleMs, cols, rows }) {
    this.#run = supervisor.spawnOwned(command, args, {
      pty: { cols, rows, name: process.env.TERM },
      sessionId,
      noOutputTimeoutMs: idleMs,
    })
    // wait() tells.
    this.#run.on('error', () => {})
    this.#run.stdin.on('error', () => {})
    // Read whether or not somebody looks: who is not read has to wait.
    this.#run.stdout.on('data', (bytes) => this.#show(bytes))
    const closed = new Promise((resolve) => this.#run.once('close', resolve))
    /** Resolves when nothing of it exists, and everything it has said was read. */
    this.ended = this.#run.wait().then(async (exit) => {
      if (exit.reason !== 'spawn-error') await closed
      return exit
    })
  }

  get pid() {
    return this.#run.pid
  }

  cancel() {
    return this.#run.cancel()
  }

  /** Your terminal and its own become one, until it ends, or somebody presses Ctrl-]. Resolves with which of the two. */
  async attach({ stdin, stdout }) {
    const fit = () => this.#fit(stdout)
    for (const bytes of this.#tail) stdout.write(bytes)
    this.#screen = stdout
    fit()
    stdout.on('resize', fit)
    stdin.setRawMode(true)
    try {
      return await Promise.race([this.ended.then(() => 'ended'), this.#pass(stdin)])
    } finally {
      stdin.setRawMode(false)
      stdin.removeAllListeners('data').pause()
      stdout.off('resize', fit)
      this.#screen = null
      // It may have been held up by a screen that nobody looks at any more.
      this.#run.stdout.resume()
    }
  }

  /** Every key, Ctrl-C included, but for the one that detaches. */
  #pass(stdin) {
    return new Promise((resolve) => {
      stdin.on('data', (bytes) => {
        const end = bytes.indexOf(DETACH)
        this.#run.stdin.write(end < 0 ? bytes : bytes.subarray(0, end))
        if (end >= 0) resolve('detached')
      })
      stdin.resume()
    })
  }

  #show(bytes) {
    this.#tail.push(bytes)
    this.#tailLength += bytes.length
    while (this.#tailLength - this.#tail[0].length >= TAIL) this.#tailLength -= this.#tail.shift().length
    const screen = this.#screen
    if (!screen || screen.write(bytes)) return
    this.#run.stdout.pause()
    screen.once('drain', () => this.#run.stdout.resume())
  }

  /** Whoever has a full screen draws it anew when the size changes, and else is told nothing new. */
  #fit({ columns, rows }) {
    try {
      this.#run.resize(columns, rows)
    } catch {
      // It has ended meanwhile.
    }
  }
}
