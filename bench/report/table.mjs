/** The rows as a table, for the terminal and for Markdown. */

import { figure, statsText, targetText, valueText, verdict } from './rows.mjs'

const HEADERS = [
  '',
  'what',
  'against',
  'target',
  'measured (95 %)',
  'ours p50/p90/p99',
  'theirs p50/p90/p99',
  'also',
]

function cells(row) {
  return [
    verdict(row),
    row.what,
    row.against,
    targetText(row),
    valueText(row),
    statsText(row.ours, row.sampleUnit),
    statsText(row.theirs, row.sampleUnit),
    [row.others.map((other) => otherText(row, other)).join(', '), row.note].filter(Boolean).join('; '),
  ]
}

function otherText(row, other) {
  if (other.ratio === undefined) return `${other.name} ${figure(other.p50, row.unit)}`
  return `${other.name} ${figure(other.ratio)}×`
}

export function terminalTable(rows) {
  const table = rows.map(cells)
  // The last column has no width limit; the others are as wide as their widest cell.
  const widths = HEADERS.map((header, i) => Math.max(header.length, ...table.map((line) => line[i].length)))
  const line = (columns) =>
    columns
      .map((text, i) => text.padEnd(widths[i]))
      .join('  ')
      .trimEnd()
  return [line(HEADERS), ...table.map((columns, i) => coloured(line(columns), rows[i]))].join('\n')
}

function coloured(text, row) {
  if (!process.stdout.isTTY || row.pass === undefined) return text
  return `\x1b[${row.pass ? 32 : 31}m${text[0]}\x1b[0m${text.slice(1)}`
}

export function markdown({ rows, machine, quick, image }) {
  const escaped = (text) => text.replaceAll('|', '\\|')
  const line = (columns) => `| ${columns.map(escaped).join(' | ')} |`
  return [
    '# Benchmark results',
    '',
    `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}, Node ${machine.node}, ${machine.date}${quick ? ' (quick run)' : ''}.`,
    'Ratios of medians, interleaved in one run; less is better unless the target says ≥. The interval is 95 %, by resampling.',
    `Rows without a target are information. Busy with something else before the run began: ${machine.busyBefore}.`,
    '',
    ...(image ? [`![The same as a plot](${image})`, ''] : []),
    line(HEADERS),
    `|${HEADERS.map(() => '---').join('|')}|`,
    ...rows.map((row) => line(cells(row))),
    '',
  ].join('\n')
}

/** One row per curve. */
export function growthTable(panels) {
  return panels
    .map(({ title, x, unit, curves }) => {
      const sizes = [...new Set(curves.flatMap(({ points }) => points.map(([size]) => size)))]
      const value = (points, size) => points.find(([at]) => at === size)?.[1]
      return plainTable(
        [`${title}, ${unit}`, ...sizes.map((size) => `${size.toLocaleString('en')} ${x}`)],
        curves.map(({ name, points }) => [
          name,
          ...sizes.map((size) => (value(points, size) === undefined ? '' : figure(value(points, size)))),
        ]),
      )
    })
    .join('\n')
}

/** One row per step, one column per kind of call. */
export function stepsTable(bars) {
  const names = [...new Set(bars.flatMap(({ steps }) => steps.map(({ step }) => step)))]
  const cell = ({ steps }, name) => {
    const found = steps.find(({ step }) => step === name)
    if (!found) return ''
    const calls = Math.round(found.calls)
    return `${figure(found.us)}${calls > 0 ? ` (${calls} system call${calls === 1 ? '' : 's'})` : ''}`
  }
  return plainTable(
    ['step', ...bars.map(({ label }) => label)],
    [
      ...names.map((name) => [name, ...bars.map((bar) => cell(bar, name))]),
      ['in all', ...bars.map(({ total }) => figure(total))],
    ],
  )
}

export function plainTable(headers, rows) {
  const line = (columns) => `| ${columns.join(' | ')} |`
  return `${[line(headers), line(headers.map(() => '---')), ...rows.map(line)].join('\n')}\n`
}
