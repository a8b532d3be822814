/**
 * The ways to start a command that are compared. Each is `start(command, args, options) →
 * ChildProcess`; the terminals have the API of node-pty.
 */

export const OURS = 'spawn-owned'
export const NODE = 'child_process'
export const EXECA = 'execa'
export const OUR_PTY = 'spawn-owned/node-pty'
export const NODE_PTY = 'node-pty'

/** `BENCH_OURS=node:child_process` measures Node against itself: the noise floor of the machine. */
const oursModule = process.env.BENCH_OURS ?? 'spawn-owned'

const loaders = {
  async [OURS]() {
    const { spawnOwned, spawn } = await import(oursModule)
    return spawnOwned ?? spawn
  },
  async [NODE]() {
    return (await import('node:child_process')).spawn
  },
  async [OUR_PTY]() {
    return (await import('spawn-owned/node-pty')).spawn
  },
  async [NODE_PTY]() {
    return (await import('@lydell/node-pty')).default.spawn
  },
  async [EXECA]() {
    const { execa } = await import('execa')
    return (command, args, options) => {
      const subprocess = execa(command, args, { reject: false, buffer: false, ...options })
      subprocess.catch(() => {})
      const { nodeChildProcess } = subprocess
      return Object.assign(nodeChildProcess, { killDescendants: () => subprocess.kill() })
    }
  },
}

export function loadSubject(name) {
  return loaders[name]()
}

/** execa 10 needs Node 22. Where it cannot be imported, it is left out. */
export async function availableSubjects(names) {
  const found = []
  for (const name of names) {
    try {
      await loadSubject(name)
      found.push(name)
    } catch (error) {
      if (name !== EXECA) throw error
      console.error('  execa is left out: it needs Node 22 or newer (--node 24)')
    }
  }
  return found
}
