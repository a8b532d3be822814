import type { SurveyedRun } from '../../../index.js'
import { COLUMNS, cellsOf, shortIds, totalsOf } from '../runs.js'
import type { Context, Outcome } from '../terminal.js'
import { table, truncated } from '../text.js'

const DEFAULT_INTERVAL_MS = 1000
const [ENTER, LEAVE] = ['\x1b[?1049h\x1b[?25l', '\x1b[?25h\x1b[?1049l']
const [HOME, CLEAR_LINE, CLEAR_BELOW] = ['\x1b[H', '\x1b[K', '\x1b[J']
/** What a key sends: a sequence for the arrows and the like, or a character. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they begin with one.
const KEY = /\x1b\[[\d;]*[A-Za-z~]|./gsu
const reversed = (text: string) => `\x1b[7m${text}\x1b[0m`

type Order = 'cpu' | 'memory' | 'processes' | 'age'
const ORDERS: Readonly<Record<string, Order>> = { c: 'cpu', m: 'memory', p: 'processes', a: 'age' }

/** A run, and what share of a processor it has used since the last look. */
export interface Line {
  readonly run: SurveyedRun
  readonly share: number
}

export async function top(context: Context): Promise<Outcome> {
  const { request } = context
  const { stdin, stdout } = process
  if (!stdin.isTTY || !stdout.isTTY)
    throw request.error('"top" needs a terminal; "ps" does not, and --json is for scripts')
  const screen = new Screen(context)
  stdout.write(ENTER)
  stdin.setRawMode(true)
  stdin.resume()
  try {
    await screen.show(request.number('interval') ?? DEFAULT_INTERVAL_MS)
  } finally {
    stdin.setRawMode(false)
    stdin.pause()
    stdout.write(LEAVE)
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

  constructor(context: Context) {
    this.#context = context
  }

  /** Until somebody has had enough. */
  show(intervalMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      let isOver = false
      // A look may take longer than somebody's patience.
      const look = () => this.#look().then(() => isOver || this.#draw(), fail)
      const timer = setInterval(look, intervalMs)
      const redraw = () => this.#draw()
      const keys = (data: Buffer) => {
        // Several, if somebody types fast.
        const pressed = String(data).match(KEY) ?? []
        if (pressed.some((key) => this.#hear(key))) finish()
        else this.#draw()
      }
      const finish = () => {
        isOver = true
        clearInterval(timer)
        process.stdin.off('data', keys)
        process.stdout.off('resize', redraw)
        for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.off(signal, finish)
        resolve()
      }
      const fail = (error: Error) => {
        finish()
        reject(error)
      }
      process.stdin.on('data', keys)
      process.stdout.on('resize', redraw)
      for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, finish)
      void look()
    })
  }

  async #look(): Promise<void> {
    const runs = await this.#context.supervisor.survey()
    const now = performance.now()
    const chosen = this.#lines[this.#chosen]?.run.record.runId
    this.#lines = ranked(runs, this.#before, now - this.#lookedAt, this.#order)
    ;[this.#before, this.#lookedAt] = [runs, now]
    // The bar stays on its run, wherever that has gone.
    const at = this.#lines.findIndex(({ run }) => run.record.runId === chosen)
    this.#chosen = at >= 0 ? at : Math.min(this.#chosen, Math.max(0, this.#lines.length - 1))
  }

  /** True: enough. */
  #hear(key: string): boolean {
    if (this.#question !== undefined) {
      if (key === 'y') void this.#cancel(this.#question)
      this.#question = undefined
      return key === '\x03'
    }
    if (key === 'q' || key === '\x03') return true
    if (key === '\x1b[A' || key === 'k') this.#chosen = Math.max(0, this.#chosen - 1)
    if (key === '\x1b[B' || key === 'j') this.#chosen = Math.min(this.#lines.length - 1, this.#chosen + 1)
    if (key === 'x') this.#question = this.#lines[this.#chosen]?.run.record.runId
    const order = ORDERS[key]
    if (order) {
      this.#order = order
      this.#lines = this.#lines.toSorted(by(order))
    }
    return false
  }

  async #cancel(runId: string): Promise<void> {
    this.#message = `ending ${runId} …`
    const { exits } = await this.#context.supervisor.cancel(runId)
    this.#message = exits[0]?.message ?? `${runId} is gone already`
    await this.#look()
    this.#draw()
  }

  #draw(): void {
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
      return from + index === this.#chosen ? reversed(fitted.padEnd(width)) : fitted
    })
    const foot =
      this.#question === undefined
        ? this.#message || 'q quit  x cancel  sort: c cpu  m memory  p processes  a age'
        : `cancel ${this.#question}? y/n`
    const text = [
      truncated(`${this.#lines.length} runs in ${supervisor.registryPath}, by ${this.#order}`, width),
      '',
      paint('bold', truncated(header, width)),
      ...shown,
    ]
    stdout.write(HOME + text.map((line) => line + CLEAR_LINE).join('\r\n') + CLEAR_BELOW)
    stdout.write(`\x1b[${height};1H${paint('dim', truncated(foot, width))}${CLEAR_LINE}`)
  }
}

/** Every run with the share of a processor it has used since the last look, in order. Pure. */
export function ranked(
  runs: readonly SurveyedRun[],
  before: readonly SurveyedRun[],
  elapsedMs: number,
  order: Order,
): Line[] {
  const used = new Map(before.map((run) => [run.record.startToken, totalsOf(run).cpuMs]))
  const lines = runs.map((run) => {
    const earlier = used.get(run.record.startToken)
    // A process that has ended takes its time with it.
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
