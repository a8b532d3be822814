// Where everything lies that is built for macOS on another system. All of it is made here, and may be deleted.
import { join } from 'node:path'
import { root } from '../tools.mjs'

/** What Node calls a processor, and what Rust does. */
export const targets = [
  { arch: 'arm64', triple: 'aarch64-apple-darwin' },
  { arch: 'x64', triple: 'x86_64-apple-darwin' },
]

export const made = join(root, 'target', 'macos')

/** Where ts/native.ts looks for an addon that was built on another system. */
export const native = (arch) => join(root, 'native', `darwin-${arch}`)
