// A bot for tools that do not support everything that the long bot uses. It owns a tree, ends it, and
// prints how it ended.
/** The source of the bot. Its tree has three processes. */
export const shortBot = `
const tree = spawnOwned('sh', ['-c', 'sleep 1000 & sleep 1000 & echo up; wait'])
async function main() {
  await new Promise((resolve) => tree.stdout.once('data', resolve))
  const { processes } = await tree.usage()
  const { reason, survivors } = await tree.cancel()
  console.log(JSON.stringify({ reason, survivors, processes: processes >= 3 }))
}
main()
`

export const asModule = `import { spawnOwned } from 'spawn-owned'\n${shortBot}`
export const asCommonJs = `const { spawnOwned } = require('spawn-owned')\n${shortBot}`

/** What the bot prints. */
export const PRINTED = '{"reason":"manual-cancel","survivors":[],"processes":true}\n'
