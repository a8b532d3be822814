import { paragraph, say } from '../lib/terminal.mjs'
import { timeline } from '../lib/timeline.mjs'

export default {
  title: 'spawnOwned · the bot is killed',
  story: 'No handler of the bot runs, but the keeper sees its socket close, and ends the tree.',
  bot: 'owned',
  event: 'bot killed',
  survivors: [],

  async play(stage) {
    const since = performance.now()
    const [ends] = await Promise.all([stage.watch(since, 5000), stage.killBot()])
    say('  ▸ kill -9 bot')
    paragraph(timeline(ends))
  },
}
