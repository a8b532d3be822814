// The recording of the demo, which README.md shows.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { renderSvg } from '../../scripts/docs/terminal-svg.mjs'

const read = (name) =>
  readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8').replaceAll('\r\n', '\n')

test('docs/demo.svg is the recording docs/demo.cast, and small', () => {
  const svg = read('demo.svg')
  assert.equal(svg, renderSvg(read('demo.cast')), 'Run: npm run docs:recording -- --render')
  assert.ok(svg.length < 60_000, `${svg.length} bytes`)
})

test('the recording shows the whole demo, and no process that spawn-owned left', () => {
  const [header, ...events] = read('demo.cast')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  assert.equal(header.version, 2)
  const text = events.map(([, , data]) => data).join('')
  assert.match(text, /child_process left 19 processes running, spawn-owned none\./)
  // What adopts the processes is the init of a PID namespace, not the keeper of the recording.
  assert.doesNotMatch(text, /spawn-owned-keeper/)
})

test('an SVG has one line of text for each line of the terminal, with its styles and its scroll steps', () => {
  const cast = [
    { version: 2, width: 10, height: 3, title: 'a & b' },
    [0.5, 'o', 'one\r\n\x1b[1;31mtwo  <2>\x1b[0m\r\n'],
    [9.5, 'o', '\r\nfour\r\n'],
  ]
  const svg = renderSvg(`${cast.map((line) => JSON.stringify(line)).join('\n')}\n`)
  assert.match(svg, /<title>a &amp; b<\/title>/)
  assert.match(svg, /<text y="13.5"><tspan x="0">one<\/tspan><\/text>/)
  assert.match(svg, /<tspan x="0" class="b r">two<\/tspan><tspan x="42" class="b r">&lt;2&gt;<\/tspan>/)
  assert.match(svg, /<text y="67.5"><tspan x="0">four<\/tspan><\/text>/)
  // A pause of 9 s becomes 1.5 s, and the end stays for 8 s.
  assert.match(svg, /animation:s 10.0s/)
  assert.match(
    svg,
    /@keyframes s\{0%\{transform:translateY\(54px\)\}5%\{transform:translateY\(18px\)\}20%\{transform:translateY\(-18px\)\}\}/,
  )
})
