/** Terminal output: optional colours, no line wider than the terminal, no line ever rewritten. */

import { setTimeout as sleep } from 'node:timers/promises'

const isTerminal = process.stdout.isTTY === true
const coloured = isTerminal && !process.env.NO_COLOR
const paint = (code) => (text) => (coloured && text !== '' ? `\x1b[${code}m${text}\x1b[0m` : text)

export const bold = paint('1')
export const dim = paint('2')
export const red = paint('1;31')
export const green = paint('32')
export const cyan = paint('36')

/** The width of the text in columns: that of the terminal, between 40 and 110. */
export function width() {
  return Math.max(40, Math.min(process.stdout.columns || 80, 110))
}

let silent = false

export function say(line = '') {
  if (!silent) process.stdout.write(`${line}\n`)
}

/** Stops all output, after an interruption. */
export function mute() {
  silent = true
}

/** Prints a paragraph, wrapped and indented by two. */
export function paragraph(text, style = (line) => line) {
  let line = ''
  for (const word of text.split(' ')) {
    if (line.length + word.length + 3 > width()) {
      say(`  ${style(line)}`)
      line = ''
    }
    line += line === '' ? word : ` ${word}`
  }
  say(`  ${style(line)}`)
}

export function heading(text) {
  say()
  say(`${cyan('──')} ${bold(text)} ${cyan('─'.repeat(Math.max(2, width() - text.length - 4)))}`)
}

/** The text, cut to at most `columns` characters. */
export function clip(text, columns) {
  return text.length <= columns ? text : `${text.slice(0, Math.max(0, columns - 1))}…`
}

/**
 * Pauses so that people can read. Does nothing without a terminal, or when the demo is already
 * slow.
 */
export async function pause(ms) {
  if (isTerminal && performance.now() < 18_000) await sleep(ms)
}

export function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}
