// node examples/pty-session/main.mjs [--idle SECONDS] [--] [COMMAND [ARGUMENT …]]
//
// An interactive session: bash, python3, an agent with a full screen. Ctrl-] detaches; then there is a prompt.

import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { Session } from './session.mjs'

const { stdin, stdout } = process
const { values, positionals } = parseArgs({
  options: { idle: { type: 'string', default: '0' } },
  allowPositionals: true,
})
const [command = 'bash', ...args] = positionals
if (!stdin.isTTY || !stdout.isTTY) {
  console.error('A session wants a terminal.')
  process.exit(1)
}

const supervisor = createSupervisor()
await supervisor.reapOrphans(process.pid)
supervisor.installSignalHandlers()

const session = new Session(supervisor, command, args, {
  sessionId: 'interactive',
  idleMs: Number(values.idle) * 1000,
  cols: stdout.columns,
  rows: stdout.rows,
})

const over = new AbortController()
session.ended.then(() => over.abort())

console.log('Ctrl-] detaches')
while (!over.signal.aborted) {
  if ((await session.attach(process)) === 'detached') await prompt()
}
const { message, exitCode } = await session.ended
console.log(`\n${command}: ${message}`)
process.exit(exitCode ?? 1)

/** Until somebody wants to attach again, or it is over. */
async function prompt() {
  const lines = createInterface({ input: stdin, output: stdout })
  // Ctrl-C is for us here.
  lines.on('SIGINT', () => session.cancel())
  try {
    for (;;) {
      const word = (await lines.question('\nattach, cancel or status? ', { signal: over.signal })).trim()
      if (word === 'attach') return
      if (word === 'cancel') await session.cancel()
      if (word === 'status') await status()
    }
  } catch (error) {
    if (error.name !== 'AbortError') throw error
  } finally {
    lines.close()
  }
}

async function status() {
  for (const { record, members } of await supervisor.survey({ sessionId: 'interactive' }))
    console.log(`${record.commandPreview}: ${members.map((one) => `${one.pid} ${one.command}`).join(', ')}`)
}
