// See bot-of-a-library.mjs.
const { startWith } = require('./libraries.cjs')

const [name, file, ...args] = process.argv.slice(2)
startWith(name, require(name), file, args)
process.stdin.resume()
