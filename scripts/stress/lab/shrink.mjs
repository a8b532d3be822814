/**
 * The shortest part of a plan that still fails: delta debugging (Zeller's ddmin). Pieces are left out, coarse ones first, for as long as
 * what is left fails. Whether it does is asked of `fails(numbers)`, which may play; races do not show every time, so who asks
 * has to play often enough.
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

/** The list without its last piece, without the one before, and so on: the end of a plan is what a failure needs least. */
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

/** One in so many real failures may be overlooked; and so often is enough, whatever the odds. */
const OVERLOOKED = 0.1
const LEAST_TRIES = 2
const MOST_TRIES = 12

/** How often a part of a plan is to be played that has failed so often of so many plays. 0: it cannot be had again, and is left as it is. */
export function triesFor(failed, plays) {
  if (failed === 0) return 0
  if (failed === plays) return LEAST_TRIES
  return Math.min(MOST_TRIES, Math.ceil(Math.log(OVERLOOKED) / Math.log(1 - failed / plays)))
}
