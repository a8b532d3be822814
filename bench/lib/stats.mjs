/** Percentiles, and ratios of medians with their uncertainty on a noisy machine. */

export function percentile(sorted, fraction) {
  const position = (sorted.length - 1) * fraction
  const below = Math.floor(position)
  const above = Math.ceil(position)
  return sorted[below] + (sorted[above] - sorted[below]) * (position - below)
}

export function median(samples) {
  return percentile(ascending(samples), 0.5)
}

export function summary(samples) {
  const sorted = ascending(samples)
  return {
    n: sorted.length,
    min: sorted[0],
    p50: percentile(sorted, 0.5),
    p90: percentile(sorted, 0.9),
    p99: percentile(sorted, 0.99),
    max: sorted.at(-1),
  }
}

/**
 * Ratio of the medians, with a 95 % interval by resampling (seeded: the same samples give the same
 * interval).
 */
export function ratioOfMedians(ours, theirs, resamples = 1000) {
  const random = seeded(0x5eed)
  const ratios = []
  for (let i = 0; i < resamples; i++) {
    ratios.push(median(resample(ours, random)) / median(resample(theirs, random)))
  }
  const sorted = ascending(ratios)
  return {
    value: median(ours) / median(theirs),
    low: percentile(sorted, 0.025),
    high: percentile(sorted, 0.975),
  }
}

function ascending(samples) {
  return [...samples].sort((a, b) => a - b)
}

function resample(samples, random) {
  return samples.map(() => samples[Math.floor(random() * samples.length)])
}

/** mulberry32 */
function seeded(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
