// Text for terminals: tables, colours, widths. Pure.

export type Colour = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan'
const CODES: Record<Colour, number> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 }

export type Paint = (colour: Colour, text: string) => string
export const painted: Paint = (colour, text) => `\x1b[${CODES[colour]}m${text}\x1b[0m`
export const plain: Paint = (_, text) => text

/** Whatever a command calls itself, it does not get to move the cursor. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about.
  return text.replace(/[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '\u00b7')
}

/** At most so many characters, the last of which says that there were more. */
export function truncated(text: string, width: number): string {
  const characters = [...text]
  if (characters.length <= width) return text
  return width > 0 ? `${characters.slice(0, width - 1).join('')}…` : ''
}

export interface Column {
  readonly title: string
  readonly align?: 'right'
  /** Gives way when the line would become too long. The last column only. */
  readonly flexible?: boolean
}

export interface Cell {
  readonly text: string
  readonly colour?: Colour | undefined
}

/** Lines of a table. `width`: no line is longer, for as far as the flexible column has something to give. */
export function table(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
  { width, paint }: { width: number; paint: Paint },
): string[] {
  const header = columns.map(({ title }): Cell => ({ text: title, colour: 'bold' }))
  const all = [header, ...rows].map((row) => row.map((cell) => ({ ...cell, text: printable(cell.text) })))
  const widths = columns.map((_, index) =>
    Math.max(...all.map((row) => [...(row[index]?.text ?? '')].length)),
  )
  return all.map((row) => {
    let line = ''
    let length = 0
    row.forEach(({ text, colour }, index) => {
      const { align, flexible } = columns[index] as Column
      const shown = flexible ? truncated(text, Math.max(8, width - length)) : text
      const gap = ' '.repeat(Math.max(0, (widths[index] as number) - [...shown].length))
      const isLast = index === columns.length - 1
      const cell = colour ? paint(colour, shown) : shown
      line += align === 'right' ? gap + cell : isLast ? cell : cell + gap
      if (!isLast) line += '  '
      length += (widths[index] as number) + 2
    })
    return line.trimEnd()
  })
}

/** Breaks a paragraph into lines of at most that width, each indented. */
export function wrapped(text: string, width: number, indent = ''): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line && indent.length + line.length + 1 + word.length > width) {
      lines.push(indent + line)
      line = word
    } else {
      line = line ? `${line} ${word}` : word
    }
  }
  if (line) lines.push(indent + line)
  return lines
}
