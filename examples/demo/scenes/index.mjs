// The scenes, in order. Each scene is one file, and has:
//   title, story   the text that the demo prints
//   bot            the bot of bot.mjs: 'plain', 'owned' or 'keeping'
//   event          the heading of its column in the table
//   survivors      the names of the processes that must be alive afterwards; otherwise the demo fails
//   play(stage)    plays the scene; returns false if another check failed
import ownedBotCrashedAndReaped from './owned-bot-crashed-and-reaped.mjs'
import ownedBotKilled from './owned-bot-killed.mjs'
import ownedCancel from './owned-cancel.mjs'
import plainBotKilled from './plain-bot-killed.mjs'
import plainCancel from './plain-cancel.mjs'

export const scenes = [plainCancel, plainBotKilled, ownedCancel, ownedBotKilled, ownedBotCrashedAndReaped]
