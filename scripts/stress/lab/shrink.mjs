/**
 * The shortest part of a plan that still fails: delta debugging (Zeller's ddmin). It leaves out
 * pieces, large ones first, as long as the rest fails. `fails(numbers)` decides that and may play
 * the part. Races do not show every time, so `fails` must play often enough.
 */
export async function shrink(numbers, fails, { isOver = () => false } = {}) {
  let kept = [...numbers]
  let pieces = 2
  while (kept.length > 1 && !isOver()) {
    const shorter = await firstFailing(withoutEach(kept, pieces), fails, isOver)
    if (shorter) {
      kept = shorter
      pieces = Math.max(2, pieces - 1)
    } else if (pieces < kept.length) pieces = Math.min(kept.length, pieces * 2)
    else break
  }
  return kept
}

/**
 * The list without its last piece, without the one before, and so on: a failure rarely needs the
 * end of a plan.
 */
function withoutEach(list, pieces) {
  const size = Math.ceil(list.length / pieces)
  const starts = Array.from({ length: Math.ceil(list.length / size) }, (_, index) => index * size)
  return starts.reverse().map((start) => [...list.slice(0, start), ...list.slice(start + size)])
}

async function firstFailing(candidates, fails, isOver) {
  for (const candidate of candidates) {
    if (isOver()) return undefined
    if (candidate.length > 0 && (await fails(candidate))) return candidate
  }
  return undefined
}

/** At most this share of real failures may be missed. The numbers of tries have limits. */
const OVERLOOKED = 0.1
const LEAST_TRIES = 2
const MOST_TRIES = 12

/**
 * How often to play a part of a plan that failed in `failed` of `plays` plays. 0: the failure
 * cannot be reproduced, and the plan stays whole.
 */
export function triesFor(failed, plays) {
  if (failed === 0) return 0
  if (failed === plays) return LEAST_TRIES
  return Math.min(MOST_TRIES, Math.ceil(Math.log(OVERLOOKED) / Math.log(1 - failed / plays)))
}
