/**
 * Parts of an SVG. Colours have names, so that a picture is readable on light and dark backgrounds.
 */

/** name → [on a light background, on a dark background] */
const PALETTE = {
  paper: ['#ffffff', '#0d1117'],
  text: ['#1c2733', '#e6edf3'],
  faint: ['#5f6f80', '#9aa7b4'],
  grid: ['#dde3ea', '#2b333d'],
  pass: ['#2e8b57', '#4cc38a'],
  fail: ['#c0392b', '#ff7b72'],
  target: ['#1f3a5f', '#79a8e0'],
  execa: ['#b7791f', '#e3b341'],
  ours: ['#2e8b57', '#4cc38a'],
  theirs: ['#c0582b', '#f0883e'],
  third: ['#5b5fc7', '#a5a8ff'],
  fourth: ['#8a8f98', '#8b949e'],
  step0: ['#4269d0', '#6f93f0'],
  step1: ['#efb118', '#e3b341'],
  step2: ['#ff725c', '#ff7b72'],
  step3: ['#6cc5b0', '#56b6a0'],
  step4: ['#3ca951', '#4cc38a'],
  step5: ['#ff8ab7', '#f2a0c3'],
  step6: ['#a463f2', '#b98cf5'],
  step7: ['#97bbf5', '#a9c8ff'],
  step8: ['#9c6b4e', '#c08f6f'],
  step9: ['#5f6f80', '#9aa7b4'],
  step10: ['#c9ced6', '#3d4650'],
  step11: ['#1b7a8c', '#3fb5c9'],
  step12: ['#8c1d40', '#e0567f'],
  step13: ['#b5bd3c', '#d3dc5a'],
}

function style() {
  const rules = (shade) =>
    Object.entries(PALETTE)
      .map(([name, colours]) => `.f-${name}{fill:${colours[shade]}}.s-${name}{stroke:${colours[shade]}}`)
      .join('')
  return `<style>${rules(0)}@media (prefers-color-scheme:dark){${rules(1)}}</style>`
}

export function picture(width, height, parts) {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">`,
    style(),
    '<rect class="f-paper" width="100%" height="100%" rx="6"/>',
    ...parts,
    '</svg>',
    '',
  ].join('\n')
}

export function text(x, y, content, { anchor = 'start', size = 12, weight = 400, colour = 'text' } = {}) {
  return `<text class="f-${colour}" x="${px(x)}" y="${px(y)}" text-anchor="${anchor}" font-size="${size}" font-weight="${weight}">${escapeXml(content)}</text>`
}

export function line(x1, y1, x2, y2, colour, width, dashes) {
  const dash = dashes ? ` stroke-dasharray="${dashes}"` : ''
  return `<line class="s-${colour}" x1="${px(x1)}" y1="${px(y1)}" x2="${px(x2)}" y2="${px(y2)}" stroke-width="${width}"${dash}/>`
}

export function box(x, y, width, height, colour, title) {
  const content = title ? `<title>${escapeXml(title)}</title>` : ''
  return `<rect class="f-${colour}" x="${px(x)}" y="${px(y)}" width="${px(Math.max(width, 0.5))}" height="${px(height)}" rx="2">${content}</rect>`
}

export function ring(x, y, radius, colour, title) {
  return `<circle class="f-paper s-${colour}" cx="${px(x)}" cy="${px(y)}" r="${radius}" stroke-width="2"><title>${escapeXml(title)}</title></circle>`
}

export function dot(x, y, colour, title) {
  return `<circle class="f-${colour}" cx="${px(x)}" cy="${px(y)}" r="3"><title>${escapeXml(title)}</title></circle>`
}

export function path(points, colour) {
  const steps = points.map(([x, y], index) => `${index === 0 ? 'M' : 'L'}${px(x)} ${px(y)}`)
  return `<path class="s-${colour}" d="${steps.join('')}" fill="none" stroke-width="2"/>`
}

function px(number) {
  return String(Math.round(number * 10) / 10)
}

function escapeXml(content) {
  return String(content)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}
