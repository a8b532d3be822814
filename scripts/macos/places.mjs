// The folders of what is built for macOS on another system. All can be deleted.
import { join } from 'node:path'
import { root } from '../tools.mjs'

/** The processor's name in Node and in Rust. */
export const targets = [
  { arch: 'arm64', triple: 'aarch64-apple-darwin' },
  { arch: 'x64', triple: 'x86_64-apple-darwin' },
]

export const made = join(root, 'target', 'macos')

/** Where ts/native/load-addon.ts looks for an addon that was built on another system. */
export const native = (arch) => join(root, 'native', `darwin-${arch}`)
