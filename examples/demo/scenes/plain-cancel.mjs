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
  story:
    "The bot tries everything: SIGTERM to the child, SIGTERM to the child's group, SIGKILL to the group.",
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

/** Waits until only the expected processes are left, then 300 ms more in case others exit, too. */
async function settle(stage, expected) {
  for (let i = 0; i < 100 && stage.alive().length > expected.length; i++) await sleep(20)
  await sleep(300)
}
