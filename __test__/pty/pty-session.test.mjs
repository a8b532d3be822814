// examples/pty-session, used at a terminal.
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry } from '../support/bots.mjs'
import { builtExample } from '../support/examples.mjs'
import { assert, openWitness, program } from '../support/prelude.mjs'
import { NO_TTY, nodeOnly, posixTests } from '../support/system.mjs'
import { openTerminal } from '../support/terminal.mjs'

const { describe, test } = posixTests(NO_TTY)

const main = builtExample('pty-session', 'main')
const options = nodeOnly('the example is written for Node', { timeout: 120_000 })
const [CTRL_C, DETACH] = ['\x03', '\x1d']
const SHELL = ['bash', '--norc', '--noprofile', '-i']

/** Starts the example at a terminal. */
function startSession(t, args, { cols = 90, rows = 20 } = {}) {
  const path = freshRegistry()
  const env = { ...process.env, PS1: 'ready> ', TERM: 'dumb', SPAWN_OWNED_REGISTRY: path }
  const terminal = openTerminal(t, process.execPath, [main, ...args], { pty: { cols, rows }, env })
  return Object.assign(terminal, { path })
}

async function startShellSession(t) {
  const terminal = startSession(t, ['--', ...SHELL])
  await terminal.sees(/ready> /)
  return terminal
}

/** Makes the shell start a process that leaves its session and one that does not. */
async function startBoth(t, terminal) {
  const witness = openWitness(t)
  const stays = `'${program('half-setsid')}' '${witness.path}' </dev/null`
  terminal.type(`${stays} &\r`)
  await witness.ready(33)
  return witness
}

describe('a session', options, () => {
  test('has the size of the terminal and follows it', async (t) => {
    const terminal = await startShellSession(t)
    terminal.type('stty size\r')
    await terminal.sees(/20 90/)
    terminal.child.resize(77, 11)
    // The shell decides when it handles the resize.
    terminal.type('until stty size | grep "11 77"; do :; done\r')
    await terminal.sees(/\n11 77/)
    terminal.type('exit 3\r')
    await terminal.sees(/bash: exited with code 3/)
    assert.equal((await terminal.child.wait()).exitCode, 3)
  })

  test('gets each key, also Ctrl-C', async (t) => {
    const terminal = await startShellSession(t)
    // The terminal echoes the input, so the input must not look like the answer.
    const line = "trap \"echo int''errupted; exit\" INT; echo wai''ting; while :; do sleep 0.1; done"
    terminal.type(`sh -c "${line.replaceAll('"', '\\"')}"\r`)
    await terminal.sees(/waiting/)
    terminal.type(CTRL_C)
    await terminal.sees(/interrupted/)
    terminal.type('echo "still $((40 + 2))"\r')
    await terminal.sees(/still 42/)
  })

  test('goes on while it is detached, and shows its output after the attach', async (t) => {
    const terminal = await startShellSession(t)
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

  test('is cancelled with all its descendants', async (t) => {
    const terminal = await startShellSession(t)
    const witness = await startBoth(t, terminal)
    terminal.type(DETACH)
    await terminal.sees(/attach, cancel or status\? /)
    terminal.type('cancel\r')
    await terminal.sees(/bash: cancelled/)
    assertGone(witness)
  })

  test('is cancelled by another process while it is attached', async (t) => {
    const terminal = await startShellSession(t)
    const witness = await startBoth(t, terminal)
    await createSupervisor({ registryPath: terminal.path }).cancel({ sessionId: 'interactive' })
    assertGone(witness)
    await terminal.sees(/bash: cancelled/)
  })

  test('ends after the idle timeout', async (t) => {
    const witness = openWitness(t)
    const terminal = startSession(t, ['--idle', '4', '--', program('half-setsid'), witness.path])
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
