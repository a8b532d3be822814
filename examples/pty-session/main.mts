// node examples/pty-session/main.mts [--idle SECONDS] [--] [COMMAND [ARGUMENT …]]
//
// An interactive session: bash, python3, an agent with a full-screen interface. Ctrl-] detaches and
// shows a prompt.

import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { Session } from './session.mts'

const { stdin, stdout } = process
const { values, positionals } = parseArgs({
  options: { idle: { type: 'string', default: '0' } },
  allowPositionals: true,
})
const [command = 'bash', ...args] = positionals
if (!stdin.isTTY || !stdout.isTTY) {
  console.error('This example needs a terminal: stdin and stdout must be TTYs. Run it without pipes.')
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

const ended = new AbortController()
session.ended.then(() => ended.abort())

console.log('Press Ctrl-] to detach.')
while (!ended.signal.aborted) {
  if ((await session.attach(process)) === 'detached') await prompt()
}
const { message, exitCode } = await session.ended
console.log(`\n${command}: ${message}`)
process.exit(exitCode ?? 1)

/** Reads commands until the user types `attach`, or the session ends. */
async function prompt(): Promise<void> {
  const lines = createInterface({ input: stdin, output: stdout })
  // While detached, Ctrl-C cancels the session.
  lines.on('SIGINT', () => session.cancel())
  try {
    for (;;) {
      const word = (await lines.question('\nattach, cancel or status? ', { signal: ended.signal })).trim()
      if (word === 'attach') return
      if (word === 'cancel') await session.cancel()
      if (word === 'status') await status()
    }
  } catch (error) {
    if ((error as Error).name !== 'AbortError') throw error
  } finally {
    lines.close()
  }
}

async function status(): Promise<void> {
  for (const { record, members } of await supervisor.survey({ sessionId: 'interactive' }))
    console.log(`${record.commandPreview}: ${members.map((one) => `${one.pid} ${one.command}`).join(', ')}`)
}
