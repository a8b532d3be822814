// A stand-in for a CLI agent. It does nothing but start processes, each in a way that real agents start theirs.
// fd 3 is the witness: every process holds it, and stays until its other end is closed.
import { spawn } from 'node:child_process'
import { read, readFileSync, writeSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

process.title = 'agent'
announce()

const script = fileURLToPath(new URL('cast.sh', import.meta.url))
start('log-watcher')
start('npx')
start('tool-shell', { detached: true })
start('browser', { detached: true })
start('daemonize', { detached: true })
start('daemonize-as-ghost', { detached: true })

/** `detached` is setsid: a session and a group of its own. */
function start(role, { detached = false } = {}) {
  spawn('bash', [script, role], { argv0: role, detached, stdio: ['ignore', 'ignore', 'ignore', 3] })
}

/** Name, pid and start time: together they name this process and no other. */
function announce() {
  const stat = readFileSync('/proc/self/stat', 'utf8')
  const startTime = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  try {
    writeSync(3, `agent\t${process.pid}\t${startTime}\n`)
  } catch {
    // The demo is gone.
    process.exit()
  }
}

// Nothing is ever written to us; the read ends when the demo lets go.
read(3, Buffer.alloc(1), () => process.exit())
