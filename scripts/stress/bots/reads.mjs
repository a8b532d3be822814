// Reads the file of the registry again and again, without a lock. argv[2] is JSON {ids}: runs that
// live all the time. See shared-registry.mjs.
import { readFileSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'

const { ids } = JSON.parse(process.argv[2])
const path = process.env.SPAWN_OWNED_REGISTRY
const found = { reads: 0, invalid: [], lost: [] }
let reading = true

process.stdin
  .on('end', () => process.exit(1))
  .on('data', () => {
    reading = false
  })
say('reading')
while (reading) {
  look()
  await turn()
}
say('stop', found)
process.exit()

function look() {
  found.reads++
  let entries
  try {
    entries = JSON.parse(readFileSync(path, 'utf8')).entries
  } catch (error) {
    note('invalid', `read ${found.reads}: ${error.message}`)
    return
  }
  const there = new Set(entries.map(({ runId }) => runId))
  if (there.size < entries.length) note('invalid', `read ${found.reads}: a run occurs twice`)
  const missing = ids.filter((id) => !there.has(id))
  if (missing.length > 0) note('lost', `read ${found.reads}: live runs are missing: ${missing.join(', ')}`)
}

function note(what, text) {
  if (found[what].length < 1000) found[what].push(text)
}

function say(said, value) {
  console.log(JSON.stringify({ said, value }))
}
