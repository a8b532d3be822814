/**
 * The clock jumps, as after a sleep or a correction. CLOCK_REALTIME has no namespace. So a library
 * that is preloaded into the bots adds an offset to the kernel's time. Keepers are static
 * executables and get the true time.
 */

const JUMPS = {
  '-1 day': -86_400_000,
  '-1 hour': -3_600_000,
  '-2 s': -2000,
  '+31 s': 31_000,
  '+1 hour': 3_600_000,
  '+1 day': 86_400_000,
}

export const clockMoves = [
  {
    name: 'clock',
    weight: 1,
    draw: ({ dice }) => ({ jump: dice.pick(Object.keys(JUMPS)) }),
    describe: ({ jump }) => `the clock of all bots jumps: ${jump}`,
    play: (stage, { jump }) => stage.lies.jump(JUMPS[jump]),
  },
]
