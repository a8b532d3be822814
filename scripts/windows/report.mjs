// Prints the failures, and one line about the rest.

export class Report {
  #results = []
  #version
  #verbose

  constructor(version, verbose) {
    this.#version = version
    this.#verbose = verbose
  }

  add(result) {
    this.#results.push(result)
    if (this.#verbose) this.#detail(result)
    if (!result.ok) this.#failure(result)
    for (const line of result.left) console.log(`${result.file}: ${line}`)
  }

  /** Whether all tests passed. */
  finish() {
    const sum = (what) => this.#results.reduce((total, result) => total + result[what], 0)
    const bad = this.#results.filter(({ ok }) => !ok).map(({ file }) => file)
    const counts = `${sum('passed')} passed, ${sum('failed')} failed, ${sum('skipped')} skipped`
    console.log(`windows, node.exe ${this.#version}: ${counts} in ${this.#results.length} files`)
    if (bad.length > 0) console.log(`failed: ${bad.join(' ')}`)
    return bad.length === 0
  }

  #detail({ file, seconds, passed, failed, skipped, skips }) {
    console.log(`${file}: ${passed} passed, ${failed} failed, ${skipped} skipped, ${seconds.toFixed(1)} s`)
    for (const { name, reason } of skips) console.log(`  skipped: ${name}: ${reason || 'no reason given'}`)
  }

  #failure({ file, code, late, finished, failures, out, err }) {
    const how = late
      ? 'was killed, because it took too long'
      : finished
        ? 'failed'
        : `ended early with code ${code}`
    console.log(`\n==== ${file} ${how}`)
    for (const block of failures) console.log(block)
    if (!finished) console.log(lastLines(out))
    console.log(lastLines(err))
  }
}

/** A crash is reported at the end of the output. */
const lastLines = (text) => text.trimEnd().split(/\r?\n/).slice(-60).join('\n')
