import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { script } from '../../__test__/support/fixtures.mjs'
import { Wrong } from './lib/loop.mjs'
import { StressRegistry } from './lib/registry.mjs'

export const what =
  'a bot whose JavaScript writes process.env on two threads while it starts, reaps and cancels never crashes'
export const full = 1000

export async function play(loop) {
  const registry = new StressRegistry()
  await loop.each(async () => {
    const bot = [script('writes-its-environment.mjs'), registry.path, '2']
    const began = performance.now()
    try {
      await promisify(execFile)(process.execPath, bot, { timeout: 120_000 })
    } catch ({ code, signal, stderr }) {
      throw new Wrong(`the bot ended with ${signal ?? code}:\n${stderr}`)
    }
    loop.time(performance.now() - began)
  })
  await registry.close()
}
