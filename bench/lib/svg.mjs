/**
 * The rows that have a target, as two plots in one SVG:
 * ratios on a logarithmic scale around 1× (the opponent), and absolute costs as a share of what is allowed.
 * Bars to the left are better in both.
 */

import { figure, targetText } from './rows.mjs'

const WIDTH = 1120
const LEFT = 400
const RIGHT = 300
const PLOT = WIDTH - LEFT - RIGHT
const ROW = 30
const BAR = 16
const COLOURS = {
  pass: '#2e8b57',
  fail: '#c0392b',
  target: '#1f3a5f',
  grid: '#dde3ea',
  text: '#1c2733',
  faint: '#5f6f80',
}

export function plot(rows, { title, subtitle }) {
  const judged = rows.filter((row) => row.target)
  const ratios = judged.filter((row) => row.unit === '×').map(asCost)
  const absolute = judged.filter((row) => row.unit !== '×' && row.target.atMost > 0)
  const parts = [
    text(20, 32, title, { size: 18, weight: 600 }),
    text(20, 52, subtitle, { colour: COLOURS.faint }),
  ]
  let y = 84
  if (ratios.length > 0) {
    parts.push(
      heading(y, 'Cost as a ratio to the opponent, logarithmic: 1× is the opponent, left of it is better'),
    )
    y = ratioPanel(parts, ratios, y + 14)
    y += 34
  }
  if (absolute.length > 0) {
    parts.push(heading(y, 'Absolute cost as a share of what is allowed: 100 % is the target'))
    y = sharePanel(parts, absolute, y + 14)
    y += 30
  }
  const execa = ratios.some((row) => row.others.length > 0)
  parts.push(...legend(y, execa))
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y + 20}" viewBox="0 0 ${WIDTH} ${y + 20}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n')
}

/** A throughput is turned over, so that everywhere less is better. */
function asCost(row) {
  const turned = row.target.atLeast !== undefined
  const cost = (value) => (turned ? 1 / value : value)
  return {
    ...row,
    cost: cost(row.value),
    low: Math.min(cost(row.low), cost(row.high)),
    high: Math.max(cost(row.low), cost(row.high)),
    allowed: cost(row.target.atMost ?? row.target.atLeast),
    label: turned ? `${row.what} (as time)` : row.what,
    others: row.others.map((other) => ({ name: other.name, cost: cost(other.ratio) })),
  }
}

function ratioPanel(parts, rows, top) {
  const values = rows.flatMap((row) => [
    row.low,
    row.high,
    row.allowed,
    ...row.others.map((other) => other.cost),
    1,
  ])
  const from = Math.floor(Math.log10(Math.min(...values)))
  const to = Math.max(1, Math.ceil(Math.log10(Math.max(...values))))
  const x = (value) => LEFT + ((Math.log10(value) - from) / (to - from)) * PLOT
  const bottom = top + rows.length * ROW + 8
  for (let power = from; power <= to; power++) {
    parts.push(
      gridLine(x(10 ** power), top, bottom, power === 0),
      axisLabel(x(10 ** power), bottom, `${figure(10 ** power)}×`),
    )
  }
  rows.forEach((row, i) => {
    const middle = top + i * ROW + ROW / 2 + 4
    const [a, b] = [x(row.cost), x(1)].sort((p, q) => p - q)
    parts.push(
      rowLabel(middle, row.label),
      bar(a, middle, b - a, row.pass),
      whisker(x(row.low), x(row.high), middle),
      targetMark(x(row.allowed), middle),
      ...row.others.map((other) => otherMark(x(other.cost), middle, other.name)),
      text(
        WIDTH - RIGHT + 14,
        middle + 4,
        `${figure(row.value)}× of ${row.against}, target ${targetText(row).replace(/, .*/, '')}`,
        {
          colour: row.pass ? COLOURS.pass : COLOURS.fail,
          weight: 600,
        },
      ),
    )
  })
  return bottom + 14
}

function sharePanel(parts, rows, top) {
  const shares = rows.map((row) => row.value / row.target.atMost)
  const most = Math.max(1.25, ...shares)
  const x = (share) => LEFT + (Math.min(share, most) / most) * PLOT
  const bottom = top + rows.length * ROW + 8
  const step = most <= 2 ? 0.25 : most <= 5 ? 0.5 : Math.ceil(most / 8)
  for (let share = 0; share <= most + 1e-9; share += step) {
    parts.push(
      gridLine(x(share), top, bottom, share === 1),
      axisLabel(x(share), bottom, `${Math.round(share * 100)} %`),
    )
  }
  rows.forEach((row, i) => {
    const middle = top + i * ROW + ROW / 2 + 4
    parts.push(
      rowLabel(middle, row.what),
      bar(LEFT, middle, x(shares[i]) - LEFT, row.pass),
      targetMark(x(1), middle),
      text(
        WIDTH - RIGHT + 14,
        middle + 4,
        `${figure(row.value, row.unit)}, target ${targetText(row).replace(/ \(.*/, '')}`,
        {
          colour: row.pass ? COLOURS.pass : COLOURS.fail,
          weight: 600,
        },
      ),
    )
  })
  return bottom + 14
}

function legend(y, execa) {
  const items = [
    [(x) => bar(x, y - 4, 24, true), 'target met'],
    [(x) => bar(x, y - 4, 24, false), 'target missed'],
    [(x) => targetMark(x + 12, y - 4), 'target'],
    [(x) => whisker(x, x + 24, y - 4), '95 % interval'],
  ]
  if (execa) items.push([(x) => otherMark(x + 12, y - 4, 'execa'), 'execa'])
  return items.flatMap(([draw, label], i) => [
    draw(LEFT + i * 125),
    text(LEFT + i * 125 + 32, y, label, { colour: COLOURS.faint }),
  ])
}

function heading(y, content) {
  return text(20, y, content, { size: 13, weight: 600 })
}

function rowLabel(middle, content) {
  return text(LEFT - 12, middle + 4, content.replace(', to verified extinction', ''), { anchor: 'end' })
}

function axisLabel(x, bottom, content) {
  return text(x, bottom + 14, content, { anchor: 'middle', size: 11, colour: COLOURS.faint })
}

function gridLine(x, top, bottom, strong) {
  return line(x, top, x, bottom, strong ? COLOURS.faint : COLOURS.grid, 1)
}

function bar(x, middle, width, pass) {
  const colour = pass ? COLOURS.pass : COLOURS.fail
  return `<rect x="${px(x)}" y="${px(middle - BAR / 2)}" width="${px(Math.max(width, 1))}" height="${BAR}" rx="2" fill="${colour}" fill-opacity="0.75"/>`
}

function whisker(low, high, middle) {
  return [
    line(low, middle, high, middle, COLOURS.text, 1),
    line(low, middle - 3, low, middle + 3, COLOURS.text, 1),
    line(high, middle - 3, high, middle + 3, COLOURS.text, 1),
  ].join('')
}

function targetMark(x, middle) {
  return line(x, middle - ROW / 2 + 3, x, middle + ROW / 2 - 3, COLOURS.target, 3)
}

function otherMark(x, middle, name) {
  return `<circle cx="${px(x)}" cy="${px(middle)}" r="4.5" fill="#ffffff" stroke="#b7791f" stroke-width="2"><title>${escapeXml(name)}</title></circle>`
}

function line(x1, y1, x2, y2, colour, width) {
  return `<line x1="${px(x1)}" y1="${px(y1)}" x2="${px(x2)}" y2="${px(y2)}" stroke="${colour}" stroke-width="${width}"/>`
}

function text(x, y, content, { anchor = 'start', size = 12, weight = 400, colour = COLOURS.text } = {}) {
  return `<text x="${px(x)}" y="${px(y)}" text-anchor="${anchor}" font-size="${size}" font-weight="${weight}" fill="${colour}">${escapeXml(content)}</text>`
}

function px(number) {
  return String(Math.round(number * 10) / 10)
}

function escapeXml(content) {
  return content
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}
