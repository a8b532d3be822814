// A bot that starts runs of one command and waits for its own end. argv[2] is JSON {command, args,
// runIds, graceMs, containment}. fd 3 is the witness, which each run inherits. fd 4 becomes the
// stdin of the runs: it does not end with the bot.
import { writeSync } from 'node:fs'
import { spawnOwned } from 'spawn-owned'

const { command, args, runIds, ...options } = JSON.parse(process.argv[2])
writeSync(1, 'spawning\n')
for (const runId of runIds)
  spawnOwned(command, args, { runId, ...options, stdio: [4, 'ignore', 'ignore', 3] })
// The bot exits when the loop is gone.
process.stdin.on('end', () => process.exit(1)).resume()
