// A bot that keeps some runs alive and starts others on request. argv[2] is JSON {held: count}. See
// shared-registry.mjs. fd 3 is the witness, which every run inherits.
import { createInterface } from 'node:readline'
import { spawnOwned } from 'spawn-owned'

const { held } = JSON.parse(process.argv[2])
const stdio = ['ignore', 'ignore', 'ignore', 3]
const runs = Array.from({ length: held }, () => spawnOwned('sleep', ['600'], { stdio }))

const orders = {
  /** Starts `count` runs, which end in different ways. Returns a description of each wrong end. */
  async spawn({ count }) {
    const ends = await Promise.all(Array.from({ length: count }, (_, index) => ways[index % ways.length]()))
    return ends.flat()
  },
  async end() {
    await Promise.all(runs.map((run) => run.cancel()))
  },
}

const ways = [
  async () => expect(await spawnOwned('true', { stdio }).wait(), 'exit'),
  async () => expect(await spawnOwned('sh', ['-c', 'kill -9 $$'], { stdio }).wait(), 'signal'),
  async () => expect(await spawnOwned('sleep', ['600'], { stdio }).cancel(), 'manual-cancel'),
]

function expect({ runId, reason, survivors }, expected) {
  if (reason === expected && survivors.length === 0) return []
  return [`run ${runId} ended with reason ${reason} instead of ${expected}, ${survivors.length} survivors`]
}

say(
  'held',
  runs.map(({ runId }) => runId),
)
for await (const line of createInterface({ input: process.stdin })) {
  const { order, ...more } = JSON.parse(line)
  say(order, await orders[order](more))
  if (order === 'end') break
}
process.exit()

function say(said, value) {
  console.log(JSON.stringify({ said, value }))
}
