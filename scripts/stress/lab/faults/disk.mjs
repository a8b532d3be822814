/** The registry's disk is full, and has space again. It is one of its own, of 64 KiB. */

export const diskMoves = [
  {
    name: 'fill-disk',
    weight: 0.7,
    draw: (draft) => draft.begin('full disk'),
    tell: () => 'the disk of the registry is full from here on',
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
    tell: () => 'the disk has space again',
    play: (stage) => stage.remedy('full disk'),
  },
]
