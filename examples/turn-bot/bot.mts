// node examples/turn-bot/bot.mts [--agent 'claude -p'] [--timeout SECONDS]
//
// A chat bot with a CLI agent that answers, turn by turn. The chat is this terminal. The line
// `alice: fix the tests` starts a turn in the session alice.

import { extname } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { Turns } from './turns.mts'

// The stand-in has the extension of this file: .mts, or .mjs after a build.
const standIn = [
  process.execPath,
  fileURLToPath(new URL(`agent${extname(import.meta.url)}`, import.meta.url)),
]
const { values } = parseArgs({ options: { agent: { type: 'string' }, timeout: { type: 'string' } } })
const given = values.agent ?? process.env.TURN_AGENT

const supervisor = createSupervisor()
const turns = new Turns({
  supervisor,
  agent: given ? given.split(/\s+/) : standIn,
  timeoutMs: Number(values.timeout ?? process.env.TURN_TIMEOUT ?? 0) * 1000,
  say: (line) => console.log(line),
})

const HELP = `SESSION: TEXT     a turn
/cancel SESSION   terminate the running turn, also if another bot started it
/timeout SECONDS  set the timeout of new turns; 0: no timeout
/ps               list the running turns
/crash            kill this bot with SIGKILL
/quit             terminate all turns and exit`

const commands: Record<string, (argument: string) => unknown> = {
  cancel: (session) => turns.cancel(session),
  timeout: (seconds) => turns.setLimit(Number(seconds) * 1000),
  ps: () => turns.printRuns(),
  crash: () => process.kill(process.pid, 'SIGKILL'),
  quit: () => leave(),
}

// First, before this bot starts any run: terminate what an earlier bot left behind.
await turns.reap()

// On Ctrl-C, SIGTERM or a closed terminal: terminate all runs, then exit with 128 + the signal
// number.
supervisor.installSignalHandlers()
supervisor.on('event', (event) => {
  if (event.type === 'shutdown' && event.phase === 'end') console.log(`bye: ${event.runs} ended with the bot`)
})

console.log(`bot ${process.pid} listens. Type /help for a list of commands.`)
// `terminal: false`, because readline handles Ctrl-C itself in terminal mode.
createInterface({ input: process.stdin, terminal: false }).on('line', onLine).on('close', leave)

function onLine(line: string): void {
  const [, name = '', argument = ''] = /^\/(\w+)\s*(.*)$/.exec(line) ?? []
  const [, session, text = ''] = /^(\w+):\s*(.+)$/.exec(line) ?? []
  if (Object.hasOwn(commands, name)) commands[name]?.(argument)
  else if (session) turns.begin(session, text)
  else if (line !== '') console.log(HELP)
}

async function leave(): Promise<void> {
  await supervisor.shutdown()
  process.exit(0)
}
