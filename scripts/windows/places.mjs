// The folders of everything for Windows. All can be deleted.
import { join } from 'node:path'
import { root } from '../tools.mjs'

export const triple = 'x86_64-pc-windows-gnu'

/**
 * Below target/, which Cargo never searches: a Wine prefix has a link to `/`, so a walk through it
 * never ends.
 */
export const made = join(root, 'target', 'windows')

/** Where ts/native/load-addon.ts looks for an addon that was built on another system. */
export const native = join(root, 'native', 'win32-x64')

/** The addon of __test__/support/failpoints.mjs. It cannot be built inside Wine. */
export const failpoints = join(made, 'failpoints')

/** Wine shows the root of the file system as drive Z. */
export const windowsPath = (path) => `Z:${path.replaceAll('/', '\\')}`
