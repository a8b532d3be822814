// Parses and formats durations and sizes. Pure.

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const SIZES = { k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 } as const

/**
 * Returns the ms of `90s`, `1h30m` or `250ms`. A plain number is seconds. undefined: no duration.
 */
export function parseDuration(text: string): number | undefined {
  if (/^\d+(\.\d+)?$/.test(text)) return wholeMs(Number(text) * 1000)
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined
  const parts = text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)
  return wholeMs(
    [...parts].reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[unit as keyof typeof UNITS], 0),
  )
}

/** Rounds to whole ms, but never down to 0: a timeout of 0 means "no timeout". */
const wholeMs = (ms: number) => (ms > 0 ? Math.max(1, Math.round(ms)) : 0)

/** Formats a duration as one number and one unit, as an option accepts it: `100ms`, `24d`. */
export function formatDuration(ms: number): string {
  const units = Object.entries(UNITS).reverse()
  const [unit, size] = units.find(([, size]) => ms >= size && ms % size === 0) ?? ['ms', 1]
  return `${ms / size}${unit}`
}

/** Returns the bytes of `512M`, `2g` or `1048576`. undefined: no size. */
export function parseSize(text: string): number | undefined {
  const [, number, unit] = /^(\d+(?:\.\d+)?)([kmgt])?(?:i?b)?$/i.exec(text) ?? []
  if (number === undefined) return undefined
  return Math.round(Number(number) * (unit ? SIZES[unit.toLowerCase() as keyof typeof SIZES] : 1))
}

/** Formats an age with its two largest units: `45s`, `12m03s`, `3h20m`, `5d04h`. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const [d, h, m, s] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
    seconds % 60,
  ]
  const two = (n: number) => String(n).padStart(2, '0')
  if (d > 0) return `${d}d${two(h)}h`
  if (h > 0) return `${h}h${two(m)}m`
  return m > 0 ? `${m}m${two(s)}s` : `${s}s`
}

/** Formats CPU time: `0.03s`, `12.5s`, `3m20s`. */
export function formatCpu(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)}s`
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)}s` : formatAge(ms)
}

export function formatBytes(bytes: number): string {
  const units = ['B', 'K', 'M', 'G', 'T']
  let unit = 0
  let value = bytes
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)}${units[unit]}`
}
