/**
 * The measured bot: a Node process with a given resident size and one subject. `node worker.mjs
 * <bench module> <subject> <resident MB>`; the `worker` functions of the bench module are its
 * commands.
 */

import { randomFillSync } from 'node:crypto'
import { loadSubject } from './subjects.mjs'

const MB = 1024 * 1024
const CHUNK = 16 * MB

const [moduleUrl, subjectName, residentText] = process.argv.slice(2)
const wantedMb = Number(residentText)
const { worker } = await import(moduleUrl)
const start = await loadSubject(subjectName)
// Global, because otherwise V8 collects it and the bot becomes small again.
globalThis.ballast = fillTo(wantedMb * MB)

process.on('message', async ({ operation, args }) => {
  try {
    const value = await worker[operation](start, args)
    if (residentMb() < wantedMb * 0.8)
      throw new Error(`the bot has shrunk to ${residentMb()} MB, expected ${wantedMb} MB`)
    process.send({ value })
  } catch (error) {
    process.send({ error: error.stack })
  }
})
process.on('disconnect', () => process.exit())
process.send({ ready: true, residentMb: residentMb() })

/** Filled with data, so that the pages are resident: untouched pages cost a fork nothing. */
function fillTo(bytes) {
  const noise = randomFillSync(Buffer.allocUnsafeSlow(MB))
  const chunks = []
  while (process.memoryUsage.rss() + CHUNK / 2 < bytes) {
    const chunk = Buffer.allocUnsafeSlow(CHUNK)
    for (let offset = 0; offset < CHUNK; offset += MB) noise.copy(chunk, offset)
    chunks.push(chunk)
  }
  return chunks
}

function residentMb() {
  return process.memoryUsage.rss() / MB
}
