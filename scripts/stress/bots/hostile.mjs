// A bot that starts runs of one command and waits for its end. argv[2] is JSON {command, args, runIds, graceMs, containment}.
// fd 3 is the witness, handed on to each run. fd 4 becomes the runs' stdin: it does not end with the bot.
import { writeSync } from 'node:fs'
import { spawnOwned } from 'spawn-owned'

const { command, args, runIds, ...options } = JSON.parse(process.argv[2])
writeSync(1, 'spawning\n')
for (const runId of runIds)
  spawnOwned(command, args, { runId, ...options, stdio: [4, 'ignore', 'ignore', 3] })
// The loop went away: so does the bot.
process.stdin.on('end', () => process.exit(1)).resume()
