// What all stand-ins for agents have in common. Each holds the witness of its test open, and exits when the test is over.
import { spawn } from 'node:child_process'
import { existsSync, openSync, writeSync } from 'node:fs'

const { STAND_IN_WITNESS, STAND_IN_TOOLS = '[]' } = process.env

if (STAND_IN_WITNESS) {
  writeSync(openSync(STAND_IN_WITNESS, 'a'), 'r')
  // The test removes its witness.
  setInterval(() => existsSync(STAND_IN_WITNESS) || process.exit(), 200).unref()
}

/** Starts the tools in sessions of their own, out of reach of a signal to the agent's group. */
export function startTools() {
  for (const [command, ...args] of JSON.parse(STAND_IN_TOOLS))
    spawn(command, args, { detached: true, stdio: 'ignore' }).unref()
}

/** Keeps an agent alive that works. */
export const stay = () => setInterval(() => {}, 2 ** 30)
