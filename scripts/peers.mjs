// The packages that our adapters and examples are made for (execa, the agent SDKs, BullMQ …), in a folder of their own: a build needs none
// of them, only tests do.
import { existsSync, mkdirSync, readlinkSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { root, run, say } from './tools.mjs'

const folder = join(root, '__test__', 'peers')

/** Makes sure that they are there, as the lock says. */
export function installPeers() {
  const installed = join(folder, 'node_modules', '.package-lock.json')
  if (!existsSync(installed) || statSync(installed).mtimeMs < newest()) {
    say('Installing the packages that adapters are tested with')
    // Without what is optional: a stand-in speaks for the agents, whose programs are hundreds of megabytes.
    const args = ['install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts', '--omit=optional']
    run('npm', args, { quiet: true, cwd: folder })
  }
  linkOurselves()
}

function newest() {
  return Math.max(
    ...['package.json', 'package-lock.json'].map((name) => statSync(join(folder, name)).mtimeMs),
  )
}

/** So that programs there can say `import 'spawn-owned'`, as a bot would; and our adapters find what a bot has beside them. */
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
    // There is none.
  }
  mkdirSync(dirname(path), { recursive: true })
  symlinkSync(target, path, 'junction')
}
