/**
 * A row is one target with its measurement: `{ bench, what, against, target, value, unit, pass,
 * ours, others }`. A row without a target is information.
 */

import { ratioOfMedians, summary } from '../lib/stats.mjs'

/** Our samples against those of an opponent: `value` is the ratio of the medians. */
export function ratioRow({ bench, what, against, target, ours, theirs, unit = 'ms', others = {}, note }) {
  const ratio = ratioOfMedians(ours, theirs)
  return judged({
    bench,
    what,
    against,
    target,
    unit: '×',
    value: ratio.value,
    low: ratio.low,
    high: ratio.high,
    sampleUnit: unit,
    ours: summary(ours),
    theirs: summary(theirs),
    others: Object.entries(others).map(([name, samples]) => ({
      name,
      ...summary(samples),
      ratio: ratioOfMedians(samples, theirs).value,
    })),
    note,
  })
}

/** One value against an absolute target. */
export function absoluteRow({ bench, what, against = '–', target, value, unit, samples, others = {}, note }) {
  return judged({
    bench,
    what,
    against,
    target,
    unit,
    value,
    sampleUnit: unit,
    ours: samples && summary(samples),
    others: Object.entries(others).map(([name, other]) => ({ name, p50: other })),
    note,
  })
}

function judged(row) {
  if (!row.target) return row
  const { atMost, atLeast, also = true } = row.target
  const within =
    (atMost === undefined || row.value <= atMost) && (atLeast === undefined || row.value >= atLeast)
  return { ...row, pass: within && also }
}

export function targetText(row) {
  if (!row.target) return ''
  const { atMost, atLeast, text } = row.target
  if (text) return text
  return atMost === undefined ? `≥ ${figure(atLeast, row.unit)}` : `≤ ${figure(atMost, row.unit)}`
}

export function valueText(row) {
  const interval = row.low === undefined ? '' : ` (${figure(row.low)}–${figure(row.high)})`
  return `${figure(row.value, row.unit)}${interval}`
}

export function statsText(stats, unit) {
  if (!stats) return ''
  const parts = [stats.p50, stats.p90, stats.p99].filter((value) => value !== undefined)
  return `${parts.map((value) => figure(value)).join(' / ')} ${unit}`
}

export function verdict(row) {
  if (row.pass === undefined) return ' '
  return row.pass ? '✓' : '✗'
}

/** Three significant digits, never an exponent. */
export function figure(value, unit = '') {
  if (!Number.isFinite(value)) return '?'
  const digits = value === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))))
  const text = value.toFixed(Math.min(digits, 4))
  const short = text.includes('.') ? text.replace(/\.?0+$/, '') : text
  return unit === '×' || unit === '' ? `${short}${unit}` : `${short} ${unit}`
}
