/** Spawn calls as bars, each divided into its steps. */

import { box, picture, text } from './draw.mjs'
import { figure } from './rows.mjs'

const [WIDTH, LEFT, ROW, BAR] = [1120, 260, 34, 20]
const PLOT = WIDTH - LEFT - 110
/** Number of step colours of the palette in draw.mjs. */
const COLOURS = 14

/** `bars`: `{ label, total, steps: [{ step, us }] }`, in microseconds. */
export function steps(bars, { title, subtitle }) {
  const longest = Math.max(...bars.map(({ total }) => total))
  const names = [...new Set(bars.flatMap(({ steps }) => steps.map(({ step }) => step)))]
  const colour = (step) => `step${names.indexOf(step) % COLOURS}`
  const parts = [text(20, 32, title, { size: 18, weight: 600 }), text(20, 52, subtitle, { colour: 'faint' })]
  bars.forEach(({ label, total, steps }, index) => {
    const top = 74 + index * ROW
    parts.push(text(LEFT - 12, top + BAR / 2 + 4, label, { anchor: 'end' }))
    let x = LEFT
    for (const { step, us } of steps) {
      const width = (us / longest) * PLOT
      if (us > 0) parts.push(box(x, top, width, BAR, colour(step), `${step}: ${figure(us, 'µs')}`))
      if (width > 30) parts.push(text(x + 4, top + BAR / 2 + 4, us.toFixed(0), { size: 11, colour: 'paper' }))
      x += width
    }
    parts.push(text(x + 8, top + BAR / 2 + 4, figure(total, 'µs'), { weight: 600 }))
  })
  const below = 74 + bars.length * ROW + 14
  names.forEach((name, index) => {
    const [x, y] = [LEFT + (index % 2) * 400, below + Math.floor(index / 2) * 20]
    parts.push(box(x, y, 12, 12, colour(name)), text(x + 18, y + 10, name, { size: 11 }))
  })
  return picture(WIDTH, below + Math.ceil(names.length / 2) * 20 + 14, parts)
}
