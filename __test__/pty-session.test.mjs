// examples/pty-session, as a person uses it, at a terminal.
import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry } from './support/bots.mjs'
import { program } from './support/fixtures.mjs'
import { NO_TTY, nodeOnly, posixTests } from './support/system.mjs'
import { openTerminal } from './support/terminal.mjs'
import { openWitness } from './support/witness.mjs'

const { describe, test } = posixTests(NO_TTY)

const main = fileURLToPath(new URL('../examples/pty-session/main.mjs', import.meta.url))
const options = nodeOnly('the example is written for Node', { timeout: 120_000 })
const [CTRL_C, DETACH] = ['\x03', '\x1d']
const SHELL = ['bash', '--norc', '--noprofile', '-i']

/** Somebody at a terminal of their own, in front of a session. */
function sit(t, args, { cols = 90, rows = 20 } = {}) {
  const path = freshRegistry()
  const env = { ...process.env, PS1: 'ready> ', TERM: 'dumb', SPAWN_OWNED_REGISTRY: path }
  const terminal = openTerminal(t, process.execPath, [main, ...args], { pty: { cols, rows }, env })
  return Object.assign(terminal, { path })
}

async function sitAtAShell(t) {
  const terminal = sit(t, ['--', ...SHELL])
  await terminal.sees(/ready> /)
  return terminal
}

/** Has the shell start a process that leaves its session, and one that does not. */
async function startBoth(t, terminal) {
  const witness = openWitness(t)
  const stays = `'${program('half-setsid')}' '${witness.path}' </dev/null`
  terminal.type(`${stays} &\r`)
  await witness.ready(33)
  return witness
}

describe('a session', options, () => {
  test('has the size of the terminal, and follows it', async (t) => {
    const terminal = await sitAtAShell(t)
    terminal.type('stty size\r')
    await terminal.sees(/20 90/)
    terminal.child.resize(77, 11)
    // When the shell hears of it is up to the shell.
    terminal.type('until stty size | grep "11 77"; do :; done\r')
    await terminal.sees(/\n11 77/)
    terminal.type('exit 3\r')
    await terminal.sees(/bash: exited with code 3/)
    assert.equal((await terminal.child.wait()).exitCode, 3)
  })

  test('gets every key, Ctrl-C too', async (t) => {
    const terminal = await sitAtAShell(t)
    // What is typed is echoed, so it must not look like the answer.
    const line = "trap \"echo he''ard; exit\" INT; echo wai''ting; while :; do sleep 0.1; done"
    terminal.type(`sh -c "${line.replaceAll('"', '\\"')}"\r`)
    await terminal.sees(/waiting/)
    terminal.type(CTRL_C)
    await terminal.sees(/heard/)
    terminal.type('echo "still $((40 + 2))"\r')
    await terminal.sees(/still 42/)
  })

  test('goes on when it is detached, and shows what it has said', async (t) => {
    const terminal = await sitAtAShell(t)
    const witness = await startBoth(t, terminal)
    terminal.type('echo "wai"ting; read word; echo "got $word"\r')
    await terminal.sees(/waiting/)
    terminal.type(`this\r${DETACH}`)
    await terminal.sees(/attach, cancel or status\? /)
    assertAlive(witness)
    terminal.type('status\r')
    await terminal.sees(/half-setsid/)
    terminal.type('attach\r')
    await terminal.sees(/waiting.*got this/s)
    terminal.type('echo "still $((40 + 2))"\r')
    await terminal.sees(/still 42/)
  })

  test('is cancelled with all that it has started', async (t) => {
    const terminal = await sitAtAShell(t)
    const witness = await startBoth(t, terminal)
    terminal.type(DETACH)
    await terminal.sees(/attach, cancel or status\? /)
    terminal.type('cancel\r')
    await terminal.sees(/bash: cancelled/)
    assertGone(witness)
  })

  test('is cancelled from elsewhere, while somebody sits in front of it', async (t) => {
    const terminal = await sitAtAShell(t)
    const witness = await startBoth(t, terminal)
    await createSupervisor({ registryPath: terminal.path }).cancel({ sessionId: 'interactive' })
    assertGone(witness)
    await terminal.sees(/bash: cancelled/)
  })

  test('ends when it has been silent for too long', async (t) => {
    const witness = openWitness(t)
    const terminal = sit(t, ['--idle', '4', '--', program('half-setsid'), witness.path])
    await witness.ready(33)
    await terminal.sees(/half-setsid: no output for 4s/)
    assertGone(witness)
  })

  test('leaves the terminal as it was', async (t) => {
    const line = `before=$(stty -g); '${process.execPath}' '${main}' -- true; test "$before" = "$(stty -g)" && echo same`
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: freshRegistry() }
    const terminal = openTerminal(t, 'sh', ['-c', line], { env })
    await terminal.sees(/true: exited with code 0/)
    await terminal.sees(/same/)
  })
})
