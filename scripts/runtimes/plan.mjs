// Which test files run in which runtime.
import { testFiles } from '../test-files.mjs'

export const allFiles = [...testFiles.keys()]

const COMPARED = "it compares with Node's own child_process, and this runtime has another one"
const CHANNELS = "its subject is 'ipc' in stdio, which needs Node"
const WINDOWS = 'its subject is Windows'
const DENO_AFTER =
  'its tests reuse run ids, and the test runner of Deno does not wait for the cleanup of a test'
const DENO_LIMIT = 'its bots get few file descriptors, and Deno itself needs more'

/**
 * Why a file does not run in a runtime. Single tests that are left out say so in the file
 * (`nodeOnly` in __test__/support/system.mjs).
 */
export const reasons = {
  bun: {
    'drop-in': COMPARED,
    'drop-in-process': COMPARED,
    errors: COMPARED,
    ipc: CHANNELS,
    stdio: COMPARED,
    windows: WINDOWS,
    'windows-rules': WINDOWS,
    'windows-trees': WINDOWS,
  },
  deno: {
    cancel: DENO_AFTER,
    'drop-in': COMPARED,
    'drop-in-process': COMPARED,
    errors: COMPARED,
    ipc: CHANNELS,
    'reap-out-of-descriptors': DENO_LIMIT,
    stdio: COMPARED,
    windows: WINDOWS,
    'windows-rules': WINDOWS,
    'windows-trees': WINDOWS,
  },
}

const fileOf = (name) => `${name}.test.mjs`

/** The files that do not run in a runtime. */
export const leftOut = (runtime) => new Set(Object.keys(reasons[runtime] ?? {}).map(fileOf))

/**
 * What every runtime must support: runs, events, streams, cancel, terminals, registry, reaping,
 * workers.
 */
const core = [
  ...['cancel', 'events', 'pty', 'reap', 'reap-report', 'registry', 'registry-files'],
  ...['run', 'runtimes', 'streams', 'workers'],
].map(fileOf)

/**
 * In CI, `npm test` runs all files with the installed Node. The other runtimes run what depends on
 * the runtime.
 */
export const sample = () => core
