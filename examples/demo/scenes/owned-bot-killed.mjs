import { paragraph, say } from '../lib/terminal.mjs'
import { timeline } from '../lib/timeline.mjs'

export default {
  title: 'spawnOwned · the bot is killed',
  story:
    'No exit handler of the bot runs. But the socket to the keeper closes, and the keeper terminates the tree.',
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
