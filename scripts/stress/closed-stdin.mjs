import { execFile, spawn } from 'node:child_process'
import { promisify } from 'node:util'
import { script } from '../../__test__/support/fixtures.mjs'
import { Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

/** With two writes each. */
const COMMANDS = 10

export const what =
  'beside three busy loops, every write to a stdin that the command has closed fails with EPIPE'
export const full = 50

export async function play(loop) {
  const registry = new StressRegistry()
  const busy = [1, 2, 3].map(() => spawn('sh', ['-c', 'while :; do :; done'], { stdio: 'ignore' }))
  try {
    await loop.each(async () => {
      const bot = [script('writes-to-a-closed-stdin.mjs'), registry.path, String(COMMANDS)]
      const { stdout } = await promisify(execFile)(process.execPath, bot, { timeout: 60_000 }).catch(
        ({ stdout }) => ({ stdout }),
      )
      const failed = stdout.split('\n').filter((code) => code === 'EPIPE').length
      loop.count('writes', 2 * COMMANDS)
      if (failed !== 2 * COMMANDS) throw new Wrong(`${failed} of ${2 * COMMANDS} writes failed with EPIPE`)
    })
  } finally {
    for (const child of busy) child.kill('SIGKILL')
  }
  await registry.close()
}
