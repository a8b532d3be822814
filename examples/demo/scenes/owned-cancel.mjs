import { inspect } from 'node:util'
import { dim, paragraph, say, width } from '../lib/terminal.mjs'
import { timeline } from '../lib/timeline.mjs'

export default {
  title: 'spawnOwned · the bot cancels',
  story:
    'The same agent, with a keeper as its parent. The keeper adopts every process that loses its parent.',
  bot: 'owned',
  event: 'cancel',
  survivors: [],

  async play(stage) {
    const since = performance.now()
    const cancelled = stage.ask('run.cancel()').then((exit) => ({ exit, alive: stage.alive() }))
    const [ends, { exit, alive }] = await Promise.all([stage.watch(since, 5000), cancelled])
    say('  ▸ await run.cancel()')
    paragraph(timeline(ends))
    say()
    say('  It resolved with')
    for (const line of inspect(exit, { compact: true, breakLength: width() - 6 }).split('\n'))
      say(dim(`    ${line}`))
    return exit.reason === 'manual-cancel' && exit.survivors.length === 0 && alive.length === 0
  },
}
