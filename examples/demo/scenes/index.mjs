// A scene is one file; it is played if it is listed here. It has
//   title, story   what people read
//   bot            which of bot.mjs's bots it needs: 'plain', 'owned' or 'keeping'
//   event          its column in the table
//   survivors      names of those that are to be alive afterwards; the demo fails if it is otherwise
//   play(stage)    does it; false if something else was not as it should be
import ownedBotCrashedAndReaped from './owned-bot-crashed-and-reaped.mjs'
import ownedBotKilled from './owned-bot-killed.mjs'
import ownedCancel from './owned-cancel.mjs'
import plainBotKilled from './plain-bot-killed.mjs'
import plainCancel from './plain-cancel.mjs'

export const scenes = [plainCancel, plainBotKilled, ownedCancel, ownedBotKilled, ownedBotCrashedAndReaped]
