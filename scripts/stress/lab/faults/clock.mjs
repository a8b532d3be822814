/**
 * The clock jumps, as after a sleep or a correction. CLOCK_REALTIME has no namespace, so the bots are lied to: a preloaded library adds
 * an offset to what the kernel says. Keepers are static executables, and are told the truth.
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
    tell: ({ jump }) => `the clock of all bots jumps: ${jump}`,
    play: (stage, { jump }) => stage.lies.jump(JUMPS[jump]),
  },
]
