import { setTimeout as sleep } from 'node:timers/promises'
import { names, namesThatLeftTheGroup } from '../lib/cast.mjs'
import { say } from '../lib/terminal.mjs'

const attempts = [
  { action: 'child.kill()', ends: ['agent'] },
  { action: 'process.kill(-pid)', ends: ['mcp-server'] },
  { action: "process.kill(-pid, 'SIGKILL')", ends: ['log-watcher'] },
]

export default {
  title: 'child_process.spawn · the bot cancels',
  story: "The bot does all it can: it kills the child, then the child's group, then the group with SIGKILL.",
  bot: 'plain',
  event: 'cancel',
  survivors: namesThatLeftTheGroup,

  async play(stage) {
    let expected = names
    for (const { action, ends } of attempts) {
      const before = stage.alive()
      await stage.ask(action)
      expected = expected.filter((name) => !ends.includes(name))
      await settle(stage, expected)
      const after = stage.alive()
      const ended = before.filter((member) => !after.includes(member)).map(({ name }) => name)
      say(`  ▸ ${action.padEnd(31)} ended ${ended.join(', ') || 'nothing'}`)
    }
  },
}

/** Until only those are left, and then a while longer, for whoever else would go. */
async function settle(stage, expected) {
  for (let i = 0; i < 100 && stage.alive().length > expected.length; i++) await sleep(20)
  await sleep(300)
}
