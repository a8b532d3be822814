// A bot that knows nothing of ownership, and starts an agent with an SDK: argv has the name in sdks.mjs. It prints `working`, and does what
// the lines of its stdin say: `cancel` ends the agent in the SDK's own way, `shutdown` ends all runs. It stays until the test ends it.
import { createInterface } from 'node:readline'
import { sdks } from './sdks.mjs'

const commands = {
  cancel: await sdks[process.argv[2]](),
  shutdown: async () => (await import('spawn-owned')).shutdown(),
}
console.log('working')
for await (const line of createInterface({ input: process.stdin })) {
  await commands[line]()
  console.log(`${line}: done`)
}
