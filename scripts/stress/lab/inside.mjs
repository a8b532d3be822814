// Plays a round inside its own PID namespace. stdin: {plan, folder}. stdout: the facts, as one line
// of JSON.
import { text } from 'node:stream/consumers'
import { Scope } from '../lib/loop.mjs'
import { Stage } from './stage.mjs'

const scope = new Scope()
const stage = new Stage(JSON.parse(await text(process.stdin)), scope)
await stage.open()
await stage.play()
process.stdout.write(JSON.stringify(stage.facts), async () => {
  await scope.close()
  process.exit()
})
