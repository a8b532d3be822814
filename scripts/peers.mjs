// The packages for which the adapters and examples are made (execa, the agent SDKs, BullMQ …), in
// their own folder. Tests need them; a build does not.
import { mkdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { installLocked } from './dependencies.mjs'
import { root } from './tools.mjs'

const folder = join(root, '__test__', 'peers')

/** Makes sure that they are installed, as the lock file says. */
export function installPeers() {
  // Without optional packages: a mock replaces the agents, whose programs have hundreds of
  // megabytes. Not every registry has the programs of the Copilot SDK for all platforms, and then npm
  // cannot lock them. So `overrides` replace them by a small package.
  installLocked(folder, 'the packages that adapters are tested with', ['--omit=optional'])
  linkOurselves()
}

/**
 * Programs there can `import 'spawn-owned'` as a bot would, and the adapters find their peers
 * beside them.
 */
function linkOurselves() {
  link(root, join(folder, 'node_modules', 'spawn-owned'))
  const sdk = join('node_modules', '@modelcontextprotocol', 'sdk')
  link(join(folder, sdk), join(root, sdk))
}

function link(target, path) {
  try {
    if (readlinkSync(path) === target) return
    rmSync(path, { recursive: true })
  } catch {
    // There is no link yet.
  }
  mkdirSync(dirname(path), { recursive: true })
  symlinkSync(target, path, 'junction')
}
