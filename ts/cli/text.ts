// Text for terminals: tables, colours, widths. Pure.

export type Colour = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan'
const CODES: Record<Colour, number> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 }

export type Paint = (colour: Colour, text: string) => string
export const painted: Paint = (colour, text) => `\x1b[${CODES[colour]}m${text}\x1b[0m`
export const plain: Paint = (_, text) => text

/** Replaces control characters: the name of a command must not move the cursor. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression replaces them
  return text.replace(/[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '\u00b7')
}

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' })
const ASCII = /^[\x20-\x7e]*$/
/** A combining mark or an invisible character: it takes no column of its own. */
const ZERO = /^[\p{Mark}\p{Cf}\p{Default_Ignorable_Code_Point}]+$/u
/** An emoji, or text that a variation selector turns into one. */
const EMOJI = /\p{Emoji_Presentation}|\ufe0f/u
const HALF_WIDTH = /^[\uff61-\uffdc]/
const WIDE =
  /^[\p{Script=Han}\p{Script=Hangul}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Bopomofo}\p{Script=Yi}\u3000-\u303e\u30fb-\u30fc\uff01-\uff60\uffe0-\uffe6]/u

function columnsOf(grapheme: string): number {
  if (ASCII.test(grapheme)) return grapheme.length
  if (ZERO.test(grapheme)) return 0
  return EMOJI.test(grapheme) || (WIDE.test(grapheme) && !HALF_WIDTH.test(grapheme)) ? 2 : 1
}

/** Returns how many columns of a terminal a text takes. CJK characters and emoji take two. */
export function widthOf(text: string): number {
  if (ASCII.test(text)) return text.length
  let width = 0
  for (const { segment } of graphemes.segment(text)) width += columnsOf(segment)
  return width
}

/** Shortens a text to `width` columns. Its last character is then `…`. */
export function truncated(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  if (width < 1) return ''
  let [shown, room] = ['', width - 1]
  for (const { segment } of graphemes.segment(text)) {
    room -= columnsOf(segment)
    if (room < 0) break
    shown += segment
  }
  return `${shown}…`
}

/** Fills a text up with spaces, like `padEnd`, but counts columns. */
export const padded = (text: string, width: number) =>
  text + ' '.repeat(Math.max(0, Math.min(width, 10_000) - widthOf(text)))

/** Returns a number with its noun: `1 process`, `2 processes`. */
export const counted = (count: number, one: string, many = `${one}s`) =>
  `${count} ${count === 1 ? one : many}`

export interface Column {
  readonly title: string
  readonly align?: 'right'
  /** The column can be shortened to this width if the terminal is narrow. */
  readonly least?: number
  /** Is shortened before other columns. Only for the last column. */
  readonly flexible?: boolean
  /** Is omitted if the terminal is too narrow. The highest value goes first. */
  readonly optional?: number
}

export interface Cell {
  readonly text: string
  readonly colour?: Colour | undefined
}

const GAP = 2
const FLEXIBLE_LEAST = 16

/**
 * Returns the width of each column; 0 for a column that is omitted.
 *
 * Omits optional columns until the others fit when they are as short as possible. Then shortens the
 * flexible column, and after it the widest ones. Pure.
 */
export function fitted(columns: readonly Column[], natural: readonly number[], width: number): number[] {
  const widths = [...natural]
  const least = columns.map(({ least, flexible }, index) =>
    Math.min(natural[index] as number, least ?? (flexible ? FLEXIBLE_LEAST : Number.POSITIVE_INFINITY)),
  )
  const total = (all: readonly number[]) =>
    all.reduce((sum, each, index) => sum + (widths[index] === 0 ? 0 : each + GAP), -GAP)
  const order = columns
    .flatMap(({ optional }, index) => (optional === undefined ? [] : [{ optional, index }]))
    .sort((a, b) => b.optional - a.optional)
  for (const { index } of order) if (total(least) > width) widths[index] = 0
  const shorten = (index: number) => {
    const room = (widths[index] as number) - (least[index] as number)
    const excess = total(widths) - width
    if (widths[index] !== 0 && excess > 0) widths[index] = (widths[index] as number) - Math.min(room, excess)
  }
  const byWidth = [...columns.keys()].sort((a, b) => (widths[b] as number) - (widths[a] as number))
  for (const index of byWidth) if (columns[index]?.flexible) shorten(index)
  for (const index of byWidth) shorten(index)
  return widths
}

/** Returns the lines of a table. Columns shrink, or are omitted, to keep lines within `width`. */
export function table(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
  { width, paint }: { width: number; paint: Paint },
): string[] {
  const header = columns.map(({ title }): Cell => ({ text: title, colour: 'bold' }))
  const all = [header, ...rows].map((row) => row.map((cell) => ({ ...cell, text: printable(cell.text) })))
  const natural = columns.map((_, index) => Math.max(...all.map((row) => widthOf(row[index]?.text ?? ''))))
  const widths = fitted(columns, natural, width)
  return all.map((row) => {
    const cells: Cell[] = []
    row.forEach(({ text, colour }, index) => {
      const columnWidth = widths[index] as number
      if (columnWidth === 0) return
      const shown = truncated(text, columnWidth)
      const fill = ' '.repeat(columnWidth - widthOf(shown))
      const isLast = index === columns.length - 1
      const gap = cells.length > 0 ? ' '.repeat(GAP) : ''
      if (columns[index]?.align === 'right') cells.push({ text: gap + fill }, { text: shown, colour })
      else cells.push({ text: gap }, { text: shown, colour }, { text: isLast ? '' : fill })
    })
    return joined(cells, width, paint).trimEnd()
  })
}

/** Joins coloured texts to one line, and cuts it off at `width`. */
export function joined(cells: readonly Cell[], width: number, paint: Paint): string {
  let room = width
  let line = ''
  for (const { text, colour } of cells) {
    const shown = truncated(text, room)
    room -= widthOf(shown)
    line += colour && shown ? paint(colour, shown) : shown
    if (shown !== text) break
  }
  return line
}

/** Wraps a paragraph to lines of at most `width` columns, with an indent. */
export function wrapped(text: string, width: number, indent = ''): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line && indent.length + widthOf(line) + 1 + widthOf(word) > width) {
      lines.push(indent + line)
      line = word
    } else {
      line = line ? `${line} ${word}` : word
    }
  }
  if (line) lines.push(indent + line)
  return lines
}

/** The least room for the text beside a term. */
const BESIDE = 32

/** Returns a list of terms and texts in two columns; on a narrow terminal each text below its term. */
export function definitions(
  pairs: readonly (readonly [term: string, text: string])[],
  width: number,
): string[] {
  const longest = Math.max(...pairs.map(([term]) => widthOf(term)))
  const isNarrow = width - longest - 4 < BESIDE
  return pairs.flatMap(([term, text]) => {
    if (isNarrow) return [`  ${term}`, ...wrapped(text, width, '      ')]
    const [first = '', ...others] = wrapped(text, width - longest - 4)
    return [`  ${padded(term, longest)}  ${first}`, ...others.map((line) => ' '.repeat(longest + 4) + line)]
  })
}
