// A stand-in for a CLI agent. It only starts processes, each in a way that real agents use.
// fd 3 is the witness: every process holds it, and runs until its other end is closed.
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

/** `detached` calls setsid: the process gets its own session and process group. */
function start(role, { detached = false } = {}) {
  spawn('bash', [script, role], { argv0: role, detached, stdio: ['ignore', 'ignore', 'ignore', 3] })
}

/** Writes name, PID and start time to the witness. PID and start time identify the process. */
function announce() {
  const stat = readFileSync('/proc/self/stat', 'utf8')
  const startTime = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  try {
    writeSync(3, `agent\t${process.pid}\t${startTime}\n`)
  } catch {
    // The demo has exited.
    process.exit()
  }
}

// The demo never writes to fd 3. The read ends when the demo closes its end.
read(3, Buffer.alloc(1), () => process.exit())
