/**
 * The rows that have a target, as two plots in one SVG: ratios on a logarithmic scale around 1×
 * (the opponent), and absolute costs as a share of the target. In both, bars to the left are
 * better.
 */

import { box, line, picture, ring, text } from './draw.mjs'
import { figure, targetText } from './rows.mjs'

const WIDTH = 1120
const LEFT = 400
const RIGHT = 300
const PLOT = WIDTH - LEFT - RIGHT
const ROW = 30
const BAR = 16
export function plot(rows, { title, subtitle }) {
  const judged = rows.filter((row) => row.target)
  const ratios = judged.filter((row) => row.unit === '×').map(asCost)
  const absolute = judged.filter((row) => row.unit !== '×' && row.target.atMost > 0)
  const parts = [text(20, 32, title, { size: 18, weight: 600 }), text(20, 52, subtitle, { colour: 'faint' })]
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
  return picture(WIDTH, y + 20, parts)
}

/** Inverts a throughput, so that less is always better. */
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
          colour: row.pass ? 'pass' : 'fail',
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
          colour: row.pass ? 'pass' : 'fail',
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
    text(LEFT + i * 125 + 32, y, label, { colour: 'faint' }),
  ])
}

function heading(y, content) {
  return text(20, y, content, { size: 13, weight: 600 })
}

function rowLabel(middle, content) {
  return text(LEFT - 12, middle + 4, content.replace(', to verified extinction', ''), { anchor: 'end' })
}

function axisLabel(x, bottom, content) {
  return text(x, bottom + 14, content, { anchor: 'middle', size: 11, colour: 'faint' })
}

function gridLine(x, top, bottom, strong) {
  return line(x, top, x, bottom, strong ? 'faint' : 'grid', 1)
}

function bar(x, middle, width, pass) {
  return box(x, middle - BAR / 2, width, BAR, pass ? 'pass' : 'fail')
}

function whisker(low, high, middle) {
  return [
    line(low, middle, high, middle, 'text', 1),
    line(low, middle - 3, low, middle + 3, 'text', 1),
    line(high, middle - 3, high, middle + 3, 'text', 1),
  ].join('')
}

function targetMark(x, middle) {
  return line(x, middle - ROW / 2 + 3, x, middle + ROW / 2 - 3, 'target', 3)
}

function otherMark(x, middle, name) {
  return ring(x, middle, 4.5, 'execa', name)
}
