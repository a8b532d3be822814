/** How values grow: small plots with logarithmic scales, two in a row, several curves in each. */

import { dot, line, path, picture, text } from './draw.mjs'
import { figure } from './rows.mjs'

const [WIDTH, COLUMN, PANEL] = [1120, 550, 250]
const PLOT = { left: 70, right: 150, top: 34, bottom: 40 }

/** `panels`: `{ title, x, unit, curves: [{ name, colour, points: [[x, y], …] }] }` */
export function curves(panels, { title, subtitle }) {
  const rows = Math.ceil(panels.length / 2)
  const parts = [text(20, 32, title, { size: 18, weight: 600 }), text(20, 52, subtitle, { colour: 'faint' })]
  panels.forEach((panel, index) => {
    parts.push(...draw(panel, 20 + (index % 2) * COLUMN, 66 + Math.floor(index / 2) * PANEL))
  })
  return picture(WIDTH, 76 + rows * PANEL, parts)
}

function draw({ title, x: what, unit, curves }, left, top) {
  const points = curves.flatMap(({ points }) => points)
  const area = {
    x: [left + PLOT.left, left + COLUMN - PLOT.right],
    y: [top + PANEL - PLOT.bottom, top + PLOT.top],
  }
  const x = scale(
    points.map(([x]) => x),
    area.x,
    false,
  )
  const y = scale(
    points.map(([, y]) => y),
    area.y,
    true,
  )
  const parts = [text(left, top + 16, title, { size: 13, weight: 600 })]
  for (const tick of y.ticks) {
    parts.push(line(area.x[0], y.at(tick), area.x[1], y.at(tick), 'grid', 1))
    parts.push(
      text(area.x[0] - 6, y.at(tick) + 4, `${figure(tick)} ${unit}`, {
        anchor: 'end',
        size: 11,
        colour: 'faint',
      }),
    )
  }
  for (const tick of new Set(points.map(([x]) => x))) {
    parts.push(
      text(x.at(tick), area.y[0] + 16, tick.toLocaleString('en'), {
        anchor: 'middle',
        size: 11,
        colour: 'faint',
      }),
    )
  }
  const middle = (area.x[0] + area.x[1]) / 2
  parts.push(text(middle, area.y[0] + 31, what, { anchor: 'middle', size: 11, colour: 'faint' }))
  const places = apart(curves.map(({ points }) => y.at(points.at(-1)[1])))
  curves.forEach(({ name, colour, points }, index) => {
    const last = points.at(-1)
    parts.push(
      path(
        points.map(([px, py]) => [x.at(px), y.at(py)]),
        colour,
      ),
      ...points.map(([px, py]) =>
        dot(x.at(px), y.at(py), colour, `${name}: ${figure(py, unit)} at ${px.toLocaleString('en')}`),
      ),
      text(x.at(last[0]) + 10, places[index] + 4, name, { size: 11, colour }),
    )
  })
  return parts
}

/** Moves names apart at the ends of curves that meet. */
function apart(places) {
  const order = places.map((y, index) => ({ y, index })).sort((a, b) => a.y - b.y)
  for (let i = 1; i < order.length; i++) order[i].y = Math.max(order[i].y, order[i - 1].y + 13)
  return order.sort((a, b) => a.index - b.index).map(({ y }) => y)
}

function scale(values, [from, to], isNice) {
  const positive = values.filter((value) => value > 0)
  let [low, high] = [Math.log10(Math.min(...positive)), Math.log10(Math.max(...positive))]
  if (isNice) [low, high] = [Math.floor(low), Math.max(Math.ceil(high), Math.floor(low) + 1)]
  const span = high - low || 1
  const at = (value) => from + ((Math.log10(Math.max(value, 10 ** low)) - low) / span) * (to - from)
  const ticks = []
  for (let power = Math.ceil(low); power <= high; power++) ticks.push(10 ** power)
  return { at, ticks }
}
