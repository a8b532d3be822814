// Renders an asciicast as an animated SVG. Pure. It knows what examples/demo prints: lines of text
// in a few styles, never rewritten.
//
// All lines are below each other in one group. The animation moves the group up, so that the last
// printed line is always at the bottom of the window. Without animation (a reader who does not want
// motion, a renderer that cannot animate) the window shows the end.

const CHAR = 8.4
const LINE = 18
const PADDING = 16
/** The longest pause between two steps, and how long the end stays. */
const MAX_PAUSE_S = 1.5
const HOLD_S = 8
/** Output within this time is one step. */
const STEP_S = 0.08

/** SGR parameters to CSS classes. */
const STYLES = { 1: 'b', 2: 'd', 31: 'r', 32: 'g', 36: 'c' }

/** Returns the SVG of a cast: the text of an asciicast v2 file. */
export function renderSvg(cast) {
  const [header, ...events] = cast
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  const text = events.map(([, , data]) => data).join('')
  const lines = styledLines(text)
  const steps = scrollSteps(events)
  const end = steps.at(-1)
  const total = end.at + HOLD_S
  const [width, height] = [header.width * CHAR + 2 * PADDING, header.height * LINE + 2 * PADDING]
  const offset = (count) => `translateY(${(header.height - count) * LINE}px)`
  const frames = steps.map(({ at, count }) => `${percent(at / total)}{transform:${offset(count)}}`)
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escaped(header.title)}</title>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}
.b{font-weight:bold}.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.c{fill:#56d4dd}
#s{transform:${offset(end.count)};animation:s ${total.toFixed(1)}s steps(1) infinite}
@keyframes s{${frames.join('')}}
@media(prefers-reduced-motion:reduce){#s{animation:none}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<clipPath id="w"><rect width="${width - 2 * PADDING}" height="${height - 2 * PADDING}"/></clipPath>
<g transform="translate(${PADDING} ${PADDING})" clip-path="url(#w)">
<g id="s">
${lines.flatMap(renderLine).join('\n')}
</g>
</g>
</svg>
`
}

/** Splits the text into lines of `{ column, text, classes }`. */
function styledLines(text) {
  let classes = []
  return text
    .replaceAll('\r', '')
    .replace(/\n$/, '')
    .split('\n')
    .map((line) => {
      const pieces = []
      let column = 0
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the text of a terminal
      for (const [, codes, plain] of line.matchAll(/\x1b\[([\d;]*)m|([^\x1b]+)/g)) {
        if (plain === undefined) {
          classes = codes.split(';').flatMap((code) => STYLES[code] ?? [])
          continue
        }
        // A piece of its own after a gap, so that columns do not depend on the width of a space.
        for (const { 0: word, index } of plain.matchAll(/\S+(?: \S+)*/g))
          pieces.push({ column: column + index, text: word, classes })
        column += [...plain].length
      }
      return pieces
    })
}

function renderLine(pieces, row) {
  if (pieces.length === 0) return []
  const y = (row + 0.75) * LINE
  const spans = pieces.map(({ column, text, classes }) => {
    const style = classes.length > 0 ? ` class="${classes.join(' ')}"` : ''
    return `<tspan x="${round(column * CHAR)}"${style}>${escaped(text)}</tspan>`
  })
  return [`<text y="${y}">${spans.join('')}</text>`]
}

/** When the window scrolls, and how many lines are printed then. Long pauses are shortened. */
function scrollSteps(events) {
  const steps = [{ at: 0, count: 0 }]
  let [previous, now] = [0, 0]
  for (const [time, , data] of events) {
    now += Math.min(time - previous, MAX_PAUSE_S)
    previous = time
    const count = steps.at(-1).count + data.split('\n').length - 1
    if (now - steps.at(-1).at < STEP_S) steps.at(-1).count = count
    else steps.push({ at: now, count })
  }
  return steps
}

function percent(share) {
  return `${round(share * 100)}%`
}

function round(number) {
  return Number(number.toFixed(2))
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
