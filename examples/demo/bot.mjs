// The bot: `node bot.mjs plain`, `owned`, `keeping` or `next`. It is a separate process, so that
// the demo can kill it. It starts the agent and executes the demo's actions. fd 3 is the witness;
// the agent inherits it.
import { spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { reapOrphans, registerProcess, spawnOwned } from 'spawn-owned'

process.title = 'bot'

const agent = [fileURLToPath(new URL('agent/agent.mjs', import.meta.url))]
const castScript = fileURLToPath(new URL('agent/cast.sh', import.meta.url))
const stdio = ['ignore', 'ignore', 'inherit', 3]

const bots = {
  /**
   * The best that child_process can do: the agent leads a process group, so that the bot can signal
   * it.
   */
  plain() {
    const child = spawn(process.execPath, agent, { stdio, detached: true })
    return {
      'child.kill()': () => child.kill(),
      'process.kill(-pid)': () => process.kill(-child.pid),
      "process.kill(-pid, 'SIGKILL')": () => process.kill(-child.pid, 'SIGKILL'),
    }
  },
  owned() {
    const run = spawnOwned(process.execPath, agent, { stdio, graceMs: 1000 })
    return { 'run.cancel()': () => run.cancel() }
  },
  /** A run that outlives the bot, and a registered daemon that child_process started. */
  keeping() {
    const onOwnerExit = 'keep'
    spawnOwned(process.execPath, agent, {
      stdio,
      graceMs: 1000,
      onOwnerExit,
      commandPreview: 'agent --resume',
    })
    const daemon = spawn('bash', [castScript, 'model-server'], {
      argv0: 'model-server',
      stdio,
      detached: true,
    })
    registerProcess({ pid: daemon.pid, commandPreview: 'model-server' })
    return {}
  },
  /** The bot that starts after a crash. */
  next: () => ({ 'reapOrphans(process.pid)': () => reapOrphans(process.pid) }),
}

const actions = bots[process.argv[2]]()
// Only the tree may hold the witness.
closeSync(3)

process.on('message', async (action) => process.send(await actions[action]()))
process.on('disconnect', () => process.exit())
