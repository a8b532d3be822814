import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'
import { clip, dim, paragraph, say, width } from '../lib/terminal.mjs'

/** How long the registry file may lag, plus some time for a busy machine. */
const REGISTRY_LAG_MS = 1000
const LINES_AN_ENTRY = 3

export default {
  title: 'spawnOwned · the bot crashes, the next one reaps',
  story:
    "This bot lets its agent outlive it (onOwnerExit: 'keep'), and has registered a daemon that it started with child_process. " +
    'Both survive a crash, and the registry lists both.',
  bot: 'keeping',
  event: 'crash, reap',
  survivors: [],

  async play(stage) {
    await stage.killBot()
    // Long enough for every process that would exit by itself.
    await sleep(1000)
    const before = stage.alive()
    say(`  ▸ kill -9 bot${' '.repeat(19)}${before.length} of ${stage.size} processes still run`)
    say('  ▸ cat process-registry.json')
    const recorded = cat(stage)
    say()

    const { killed, alreadyDead, skipped, failed } = await stage.askNext('reapOrphans(process.pid)')
    const after = stage.alive()
    say(`  ▸ reapOrphans(process.pid)      by the next bot: ${after.length} of ${stage.size} are left`)
    paragraph(
      `It resolved with ${inspect({ killed, alreadyDead, skipped, failed }, { breakLength: Infinity })}.`,
    )
    await emptied(stage)
    say('  ▸ cat process-registry.json')
    const left = cat(stage)

    const roots = ['agent', 'model-server'].map((name) => stage.members.find((one) => one.name === name).pid)
    return (
      before.length === stage.size &&
      after.length === 0 &&
      String(recorded.toSorted()) === String(roots.toSorted()) &&
      String(killed.toSorted()) === String(roots.toSorted()) &&
      left.length === 0
    )
  },
}

/** Prints the registry file, with long lines cut, and returns the PIDs in it. */
function cat(stage) {
  const text = stage.registry
  const room = width() - 6
  for (const line of text.trimEnd().split('\n')) {
    const start = clip(line, room * LINES_AN_ENTRY)
    for (let at = 0; at < start.length; at += room) say(dim(`    ${start.slice(at, at + room)}`))
  }
  return JSON.parse(text).entries.map(({ pid }) => pid)
}

async function emptied(stage) {
  const giveUpAt = performance.now() + REGISTRY_LAG_MS
  while (JSON.parse(stage.registry).entries.length > 0 && performance.now() < giveUpAt) await sleep(10)
}
