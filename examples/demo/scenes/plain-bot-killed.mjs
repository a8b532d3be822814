import { setTimeout as sleep } from 'node:timers/promises'
import { names } from '../lib/cast.mjs'
import { say } from '../lib/terminal.mjs'

export default {
  title: 'child_process.spawn · the bot is killed',
  story: 'Out of memory, a deploy, a crash: the bot gets SIGKILL, and none of its exit handlers runs.',
  bot: 'plain',
  event: 'bot killed',
  survivors: names,

  async play(stage) {
    await stage.killBot()
    say('  ▸ kill -9 bot')
    // Wait longer than the same scene takes with spawn-owned.
    await sleep(2000)
  },
}
