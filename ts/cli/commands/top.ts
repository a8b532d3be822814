import type { SurveyedRun } from '../../../index.js'
import type { Context, Outcome } from '../context.js'
import { COLUMNS, cellsOf, shortIds, totalsOf } from '../run-display.js'
import { counted, padded, printable, table, truncated } from '../text.js'

const DEFAULT_INTERVAL_MS = 1000
const [ENTER, LEAVE] = ['\x1b[?1049h\x1b[?25l', '\x1b[?25h\x1b[?1049l']
const [HOME, CLEAR_LINE, CLEAR_BELOW] = ['\x1b[H', '\x1b[K', '\x1b[J']
/** The input of one key: an escape sequence (arrows), or a character. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: an escape sequence starts with one
const KEY = /\x1b\[[\d;]*[A-Za-z~]|./gsu
const QUITTING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const reversed = (text: string) => `\x1b[7m${text}\x1b[0m`

type Order = 'cpu' | 'memory' | 'processes' | 'age'
const ORDERS: Readonly<Record<string, Order>> = { c: 'cpu', m: 'memory', p: 'processes', a: 'age' }

/** A run, and the share of a CPU that it used since the last survey. */
export interface Line {
  readonly run: SurveyedRun
  readonly share: number
}

export async function top(context: Context): Promise<Outcome> {
  const { request } = context
  const { stdin, stdout } = process
  if (!stdin.isTTY || !stdout.isTTY)
    throw request.error('"top" needs a terminal. Use "ps", or "ps --json" in scripts')
  const screen = new Screen(context)
  const leave = () => void stdout.write(LEAVE)
  stdout.write(ENTER)
  stdin.setRawMode(true)
  // Restores the screen on every exit of this process.
  process.once('exit', leave)
  try {
    await screen.show(request.number('interval') ?? DEFAULT_INTERVAL_MS)
  } finally {
    stdin.setRawMode(false)
    process.off('exit', leave)
    leave()
  }
  return 0
}

class Screen {
  readonly #context: Context
  #lines: readonly Line[] = []
  #before: readonly SurveyedRun[] = []
  #lookedAt = 0
  #order: Order = 'cpu'
  #chosen = 0
  #question: string | undefined
  #message = ''
  #isOver = false

  constructor(context: Context) {
    this.#context = context
  }

  /** Shows the runs until the user quits, or a survey fails. */
  async show(intervalMs: number): Promise<void> {
    const keys = new Keys()
    const redraw = () => this.#draw()
    process.stdout.on('resize', redraw)
    try {
      let look: Promise<void> | undefined = this.#look()
      let next = 0
      for (;;) {
        // One survey at a time. The next starts one interval after the start of the last.
        const woken = await keys.until(look ?? next - performance.now())
        if (woken === 'looked') {
          look = undefined
        } else if (woken === 'time') {
          next = performance.now() + intervalMs
          look = this.#look()
        } else if (woken.some((key) => this.#onKey(key))) {
          return
        }
        this.#draw()
      }
    } finally {
      this.#isOver = true
      process.stdout.off('resize', redraw)
      keys.close()
    }
  }

  async #look(): Promise<void> {
    const runs = await this.#context.supervisor.survey()
    const now = performance.now()
    const chosen = this.#lines[this.#chosen]?.run.record.runId
    this.#lines = ranked(runs, this.#before, now - this.#lookedAt, this.#order)
    ;[this.#before, this.#lookedAt] = [runs, now]
    // The selection stays on its run.
    const at = this.#lines.findIndex(({ run }) => run.record.runId === chosen)
    this.#chosen = at >= 0 ? at : Math.min(this.#chosen, Math.max(0, this.#lines.length - 1))
  }

  /** Handles a key. Returns true to quit. */
  #onKey(key: string): boolean {
    if (this.#question !== undefined) {
      if (key === 'y') this.#cancel(this.#question).catch((error: Error) => this.#say(error.message))
      this.#question = undefined
      return key === '\x03'
    }
    if (key === 'q' || key === '\x03') return true
    if (key === '\x1b[A' || key === 'k') this.#chosen = Math.max(0, this.#chosen - 1)
    if (key === '\x1b[B' || key === 'j')
      this.#chosen = Math.max(0, Math.min(this.#lines.length - 1, this.#chosen + 1))
    if (key === 'x') this.#question = this.#lines[this.#chosen]?.run.record.runId
    const order = ORDERS[key]
    if (order) {
      this.#order = order
      this.#lines = this.#lines.toSorted(by(order))
    }
    return false
  }

  async #cancel(runId: string): Promise<void> {
    this.#say(`terminating ${runId} …`)
    const { exits } = await this.#context.supervisor.cancel(runId)
    this.#say(exits[0]?.message ?? `${runId} has already ended`)
  }

  #say(message: string): void {
    this.#message = message
    this.#draw()
  }

  #draw(): void {
    if (this.#isOver) return
    const { stdout } = process
    const { paint, supervisor } = this.#context
    const [width, height] = [stdout.columns || 80, stdout.rows || 24]
    const ids = shortIds(this.#lines.map(({ run }) => run.record.runId))
    const rows = this.#lines.map(({ run, share }) =>
      cellsOf(run, ids.get(run.record.runId) as string, Date.now(), `${Math.round(share * 100)}%`),
    )
    const [header = '', ...lines] = table(COLUMNS, rows, { width, paint: (_, text) => text })
    const room = Math.max(1, height - 4)
    const from = Math.max(0, Math.min(this.#chosen - room + 1, lines.length - room))
    const shown = lines.slice(from, from + room).map((line, index) => {
      const fitted = truncated(line, width)
      return from + index === this.#chosen ? reversed(padded(fitted, width)) : fitted
    })
    const foot =
      this.#question === undefined
        ? this.#message || 'q quit  x cancel  sort: c cpu  m memory  p processes  a age'
        : `cancel ${this.#question}? y/n`
    const text = [
      truncated(
        printable(`${counted(this.#lines.length, 'run')} in ${supervisor.registryPath}, by ${this.#order}`),
        width,
      ),
      '',
      paint('bold', truncated(header, width)),
      ...shown,
    ]
    stdout.write(HOME + text.map((line) => line + CLEAR_LINE).join('\r\n') + CLEAR_BELOW)
    stdout.write(`\x1b[${height};1H${paint('dim', truncated(printable(foot), width))}${CLEAR_LINE}`)
  }
}

/** The keys that the user types. A signal counts as `q`. */
class Keys {
  #typed: string[] = []
  #wake = () => {}
  readonly #onData = (data: Buffer) => {
    // One chunk can contain several keys.
    this.#typed.push(...(String(data).match(KEY) ?? []))
    this.#wake()
  }
  readonly #quit = () => {
    this.#typed.push('q')
    this.#wake()
  }

  constructor() {
    process.stdin.on('data', this.#onData)
    for (const signal of QUITTING) process.on(signal, this.#quit)
  }

  close(): void {
    process.stdin.off('data', this.#onData).pause()
    for (const signal of QUITTING) process.off(signal, this.#quit)
  }

  /**
   * Resolves to the typed keys, or to 'looked' after a survey, or to 'time' after a time in ms.
   *
   * Rejects if the survey does.
   */
  async until(what: Promise<void> | number): Promise<string[] | 'looked' | 'time'> {
    let timer: NodeJS.Timeout | undefined
    const typed = new Promise<string[]>((resolve) => {
      this.#wake = () => resolve(this.#typed.splice(0))
      if (this.#typed.length > 0) this.#wake()
    })
    const other =
      typeof what === 'number'
        ? new Promise<'time'>((resolve) => {
            timer = setTimeout(resolve, what, 'time')
          })
        : what.then(() => 'looked' as const)
    try {
      return await Promise.race([typed, other])
    } finally {
      clearTimeout(timer)
    }
  }
}

/**
 * Returns the runs in order, each with the share of a CPU that it used since the last survey. Pure.
 */
export function ranked(
  runs: readonly SurveyedRun[],
  before: readonly SurveyedRun[],
  elapsedMs: number,
  order: Order,
): Line[] {
  const used = new Map(before.map((run) => [run.record.startToken, totalsOf(run).cpuMs]))
  const lines = runs.map((run) => {
    const earlier = used.get(run.record.startToken)
    // The CPU time of a process that has ended is missing, so the sum can decrease.
    const spent = earlier === undefined ? 0 : Math.max(0, totalsOf(run).cpuMs - earlier)
    return { run, share: elapsedMs > 0 ? spent / elapsedMs : 0 }
  })
  return lines.toSorted(by(order))
}

function by(order: Order): (a: Line, b: Line) => number {
  const weight = ({ run, share }: Line): number => {
    if (order === 'cpu') return share
    if (order === 'age') return -run.record.startedAt
    const { rssBytes, processes } = totalsOf(run)
    return order === 'memory' ? rssBytes : processes
  }
  return (a, b) => weight(b) - weight(a)
}
