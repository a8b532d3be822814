// The bot, a process of its own so that it can be killed: `node bot.mjs plain`, `owned`, `keeping` or `next`.
// It runs the agent and does what the demo asks for. fd 3 is the witness, which the agent inherits.
import { spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { reapOrphans, registerProcess, spawnOwned } from 'spawn-owned'

process.title = 'bot'

const agent = [fileURLToPath(new URL('agent/agent.mjs', import.meta.url))]
const offspring = fileURLToPath(new URL('agent/cast.sh', import.meta.url))
const stdio = ['ignore', 'ignore', 'inherit', 3]

const bots = {
  /** As careful as it gets: the agent leads a group of its own, so that the group can be signalled. */
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
  /** Work that is to outlive the bot, and a daemon that was started by other means. */
  keeping() {
    const onOwnerExit = 'keep'
    spawnOwned(process.execPath, agent, {
      stdio,
      graceMs: 1000,
      onOwnerExit,
      commandPreview: 'agent --resume',
    })
    const daemon = spawn('bash', [offspring, 'model-server'], {
      argv0: 'model-server',
      stdio,
      detached: true,
    })
    registerProcess({ pid: daemon.pid, commandPreview: 'model-server' })
    return {}
  },
  /** The one after a crash. */
  next: () => ({ 'reapOrphans(process.pid)': () => reapOrphans(process.pid) }),
}

const actions = bots[process.argv[2]]()
// Only the tree is to hold the witness.
closeSync(3)

process.on('message', async (action) => process.send(await actions[action]()))
process.on('disconnect', () => process.exit())
