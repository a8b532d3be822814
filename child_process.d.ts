/**
 * Node's `child_process` with `spawn` replaced by `spawnOwned`: change the import, keep the code.
 *
 * @packageDocumentation
 */
export * from 'node:child_process'
export { spawnOwned as spawn } from './index.js'
