// Where everything lies that has to do with Windows. All of it is made here, and may be deleted.
import { join } from 'node:path'
import { root } from '../tools.mjs'

export const triple = 'x86_64-pc-windows-gnu'

/** Below target/, which Cargo never looks into: a Wine prefix has a link to `/`, and who walks along it finds no end. */
export const made = join(root, 'target', 'windows')

/** Where ts/native.ts looks for an addon that was built on another system. */
export const native = join(root, 'native', 'win32-x64')

/** Where __test__/support/failpoints.mjs takes its addon from: it cannot be built from within Wine. */
export const failpoints = join(made, 'failpoints')

/** Wine shows the whole machine as drive Z. */
export const windowsPath = (path) => `Z:${path.replaceAll('/', '\\')}`
