// A bot that knows nothing of ownership and starts its commands with a library: argv has the library's name and the command. It stays until
// the test ends it. bot-of-a-library.cjs is the same for `require`.
import { startWith } from './libraries.cjs'

const [name, file, ...args] = process.argv.slice(2)
startWith(name, await import(name), file, args)
process.stdin.resume()
