/**
 * A bystander holds the lock of the registry, like a bot that was stopped at the worst moment. The
 * other bots continue with the journal.
 */

export const lockMoves = [
  {
    name: 'hold-lock',
    weight: 0.7,
    draw(draft) {
      return draft.begin('held lock') && { bystander: draft.newBystander() }
    },
    describe: () => 'a bystander takes the lock of the registry, and keeps it',
    async play(stage, { bystander }) {
      const who = 'a process that holds the lock of the registry'
      const lock = `${stage.registryPath}.lock`
      const held = await stage.bystanders.add(bystander, {
        who,
        fixture: 'holds-lock',
        args: [lock],
        isSlow: true,
      })
      if (!held) return false
      stage.remedies.set('held lock', () => stage.bystanders.dismiss(held))
    },
  },
  {
    name: 'release-lock',
    weight: 0.7,
    draw: (draft) => draft.end('held lock'),
    describe: () => 'the lock is free again',
    play: (stage) => stage.remedy('held lock'),
  },
]
