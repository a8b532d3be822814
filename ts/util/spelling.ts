// Compares a name that a caller wrote with the names that exist. Pure.

/** Returns the name that is most similar to a word, or undefined if none is similar. */
export function nearest(word: string, names: Iterable<string>): string | undefined {
  let best: { name: string; slips: number; letters: number } | undefined
  for (const name of names) {
    const letters = distance(word.toLowerCase(), name.toLowerCase())
    const slips = isStart(word.toLowerCase(), name.toLowerCase()) ? Math.min(letters, 1) : letters
    if (!best || slips < best.slips || (slips === best.slips && letters < best.letters))
      best = { name, slips, letters }
  }
  return best && best.slips <= Math.max(2, Math.floor(word.length / 3)) ? best.name : undefined
}

/** Whether one word is the start of the other: `grace` of `graceMs`, `project` of `projectDir`. */
const isStart = (a: string, b: string) =>
  a.length >= 3 && b.length >= 3 && (a.startsWith(b) || b.startsWith(a))

/**
 * Whether two names differ by case only, or by one inserted, missing, changed or swapped letter.
 */
export function isOneSlipAway(word: string, name: string): boolean {
  return Math.abs(word.length - name.length) <= 1 && distance(word.toLowerCase(), name.toLowerCase()) <= 1
}

/**
 * Returns the edit distance of two words: the number of letters to insert, delete, replace or swap
 * with their neighbour.
 */
function distance(a: string, b: string): number {
  let before: number[] = []
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const edited = Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      next.push(isSwap ? Math.min(edited, (before[j - 2] as number) + 1) : edited)
    }
    before = row
    row = next
  }
  return row[b.length] as number
}
