// Prints the failures, and one line about the rest.
import { basename } from 'node:path'

export class Report {
  results = []
  #title
  #verbose

  constructor({ title }, version, verbose) {
    this.#title = `${title} (${version})`
    this.#verbose = verbose
  }

  add(result) {
    this.results.push(result)
    if (this.#verbose) this.#detail(result)
    if (!result.ok) this.#failure(result)
  }

  /** Whether all tests passed. */
  finish() {
    const sum = (what) => this.results.reduce((total, result) => total + result[what], 0)
    const bad = this.results.filter(({ ok }) => !ok).map(({ file }) => basename(file))
    const counts = `${sum('passed')} passed, ${sum('failed')} failed, ${sum('skipped')} skipped`
    console.log(`${this.#title}: ${counts} in ${this.results.length} files`)
    if (bad.length > 0) console.log(`failed: ${bad.join(' ')}`)
    return bad.length === 0
  }

  #detail({ file, seconds, passed, failed, skipped, said }) {
    console.log(`${file}: ${passed} passed, ${failed} failed, ${skipped} skipped, ${seconds.toFixed(1)} s`)
    for (const [, reason] of said.matchAll(/^# skipped here: (.*)$/gm)) console.log(`  skipped: ${reason}`)
  }

  #failure({ file, code, signal, late, log, said }) {
    const how = late ? 'was killed, because it took too long' : `ended with ${signal ?? `code ${code}`}`
    console.log(`\n==== ${this.#title}: ${file} ${how}; its full output is in ${log}`)
    console.log(said.trimEnd().split('\n').slice(-80).join('\n'))
  }
}
