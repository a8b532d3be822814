// A bot whose runs become orphans. argv[2] is JSON {how: 'spawn' | 'register', command, witnesses}:
// one process for each witness. It prints their PIDs. For each line of its stdin it reaps, and
// prints the report.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { reapOrphans, registerProcess, spawnOwned } from 'spawn-owned'

const { how, command, witnesses } = JSON.parse(process.argv[2])
const ways = {
  spawn: (witness) => spawnOwned(command, [witness], { stdio: 'ignore' }).pid,
  register(witness) {
    const { pid } = spawn(command, [witness], { stdio: 'ignore', detached: true })
    registerProcess({ pid })
    return pid
  },
}
console.log(JSON.stringify(witnesses.map(ways[how])))
for await (const _ of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await reapOrphans(process.pid)))
process.exit()
