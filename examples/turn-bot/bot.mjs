// node examples/turn-bot/bot.mjs [--agent 'claude -p'] [--timeout SECONDS]
//
// A chat bot that has a CLI agent answer, turn by turn. The chat is this terminal: `alice: fix the tests` is a turn of the session alice.

import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { createSupervisor } from 'spawn-owned'
import { Turns } from './turns.mjs'

const standIn = [process.execPath, fileURLToPath(new URL('agent.mjs', import.meta.url))]
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
/cancel SESSION   end the turn that is in flight, whichever bot has begun it
/timeout SECONDS  for the turns to come; 0: none
/ps               what is in flight
/crash            kill this bot
/quit`

const commands = {
  cancel: (session) => turns.cancel(session),
  timeout: (seconds) => turns.limit(Number(seconds) * 1000),
  ps: () => turns.tell(),
  crash: () => process.kill(process.pid, 'SIGKILL'),
  quit: () => leave(),
}

// First of all, before there is anything of ours: what has an earlier bot left behind?
await turns.clearAway()

// Ctrl-C, SIGTERM, a closed terminal: everything is ended, in good order, and the exit code says why.
supervisor.installSignalHandlers()
supervisor.on('event', (event) => {
  if (event.type === 'shutdown' && event.phase === 'end') console.log(`bye: ${event.runs} ended with the bot`)
})

console.log(`bot ${process.pid} listens. ${HELP.split('\n').length} things to say: /help`)
// Not as a terminal, where readline would keep Ctrl-C for itself.
createInterface({ input: process.stdin, terminal: false }).on('line', onLine).on('close', leave)

function onLine(line) {
  const [, name, argument] = /^\/(\w+)\s*(.*)$/.exec(line) ?? []
  const [, session, text] = /^(\w+):\s*(.+)$/.exec(line) ?? []
  if (Object.hasOwn(commands, name ?? '')) commands[name](argument)
  else if (session) turns.begin(session, text)
  else if (line !== '') console.log(HELP)
}

async function leave() {
  await supervisor.shutdown()
  process.exit(0)
}
