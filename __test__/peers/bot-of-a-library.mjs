// A bot that does not import spawn-owned and starts its commands with a library. argv: the name of
// the library, and the command. It runs until the test ends it. bot-of-a-library.cjs does the same
// with `require`.
import { startWith } from './libraries.cjs'

const [name, file, ...args] = process.argv.slice(2)
startWith(name, await import(name), file, args)
process.stdin.resume()
