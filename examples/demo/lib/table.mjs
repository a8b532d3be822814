/** The result table: one row for each process, one column for each scene. */

import { cast } from './cast.mjs'
import { bold, clip, dim, duration, green, red, width } from './terminal.mjs'

const NAME_WIDTH = 16

const api = { plain: 'child_process', owned: 'spawn-owned', keeping: 'spawn-owned' }

export function table(results) {
  const column = Math.max(7, Math.min(16, Math.floor((width() - NAME_WIDTH - 4) / results.length)))
  const row = (name, cells, style = plain) => {
    const texts = cells.map(({ text, span = 1, style: own = style }) =>
      own(clip(text, column * span - 1).padEnd(column * span)),
    )
    return `  ${style(name.padEnd(NAME_WIDTH))}${texts.join('')}`.trimEnd()
  }
  const rule = dim(`  ${'─'.repeat(NAME_WIDTH + column * results.length - 1)}`)
  return [
    row('', apis(results), bold),
    row(
      '',
      results.map(({ scene }) => ({ text: scene.event })),
      bold,
    ),
    rule,
    ...cast.map(({ name }) =>
      row(
        name,
        results.map(({ alive }) => fate(alive.includes(name))),
      ),
    ),
    rule,
    row('left running', results.map(total), bold),
    row('all gone after', results.map(time)),
  ]
}

/** Adjacent columns with the same API share a heading. */
function apis(results) {
  const cells = []
  for (const { scene } of results) {
    if (cells.at(-1)?.text === api[scene.bot]) cells.at(-1).span++
    else cells.push({ text: api[scene.bot], span: 1 })
  }
  return cells
}

function fate(isAlive) {
  return isAlive ? { text: 'alive', style: red } : { text: 'gone', style: green }
}

function total({ alive }) {
  return alive.length > 0
    ? { text: `${alive.length} of ${cast.length}`, style: red }
    : { text: '0', style: green }
}

function time({ goneAfterMs }) {
  return goneAfterMs === undefined ? { text: '–', style: red } : { text: duration(goneAfterMs), style: green }
}

function plain(text) {
  return text
}
