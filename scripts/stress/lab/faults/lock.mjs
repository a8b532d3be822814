/** A stranger holds the lock of the registry: a bot that was stopped at the worst moment, say. The others go on by the journal. */

export const lockMoves = [
  {
    name: 'hold-lock',
    weight: 0.7,
    draw(draft) {
      return draft.begin('held lock') && { stranger: draft.newStranger() }
    },
    tell: () => 'a stranger takes the lock of the registry, and keeps it',
    async play(stage, { stranger }) {
      const who = 'one that holds the lock of the registry'
      const lock = `${stage.registryPath}.lock`
      const held = await stage.addStranger(stranger, {
        who,
        fixture: 'holds-lock',
        args: [lock],
        isSlow: true,
      })
      if (!held) return false
      stage.remedies.set('held lock', () => stage.dismiss(held))
    },
  },
  {
    name: 'release-lock',
    weight: 0.7,
    draw: (draft) => draft.end('held lock'),
    tell: () => 'the lock is free again',
    play: (stage) => stage.remedy('held lock'),
  },
]
