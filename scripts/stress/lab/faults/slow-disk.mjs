/** Every write of a bot to a file is delayed, by the preloaded library of clock.mjs. */

export const slowDiskMoves = [
  {
    name: 'slow-disk',
    weight: 0.7,
    draw: (draft) => draft.begin('slow disk') && { ms: draft.dice.pick([5, 40, 200]) },
    describe: ({ ms }) => `every write of a bot to a file takes ${ms} ms from now on`,
    play(stage, { ms }) {
      stage.lies.slowDown(ms)
      stage.diskWasSlow = true
      stage.remedies.set('slow disk', () => stage.lies.slowDown(0))
    },
  },
  {
    name: 'quick-disk',
    weight: 0.7,
    draw: (draft) => draft.end('slow disk'),
    describe: () => 'writes are fast again',
    play: (stage) => stage.remedy('slow disk'),
  },
]
