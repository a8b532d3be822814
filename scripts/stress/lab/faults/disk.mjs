/**
 * The disk of the registry is full, and later has space again. The registry has its own disk of 64
 * KiB.
 */

export const diskMoves = [
  {
    name: 'fill-disk',
    weight: 0.7,
    draw: (draft) => draft.begin('full disk'),
    describe: () => 'the disk of the registry is full from now on',
    play(stage) {
      stage.disk.fill()
      stage.couldNotLog = true
      stage.keepersMayStay = true
      stage.remedies.set('full disk', () => stage.disk.free())
    },
  },
  {
    name: 'free-disk',
    weight: 1,
    draw: (draft) => draft.end('full disk'),
    describe: () => 'the disk has space again',
    play: (stage) => stage.remedy('full disk'),
  },
]
