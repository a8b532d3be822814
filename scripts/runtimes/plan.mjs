// Which test files are run in which runtime.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../tools.mjs'

export const allFiles = readdirSync(join(root, '__test__')).filter((file) => file.endsWith('.test.mjs'))

const COMPARED = "it compares with Node's own child_process, and theirs is another one"
const CHANNELS = "its subject is 'ipc' in stdio, which needs Node"
const WINDOWS = 'its subject is Windows'
const DENO_AFTER =
  'its tests use the same run ids one after the other, and the runner of Deno does not wait for what a test does at its end'
const DENO_LIMIT = 'its bots are started with few descriptors, which do not suffice for Deno itself'

/** Why a file is not run at all there. What is left out of a file says so itself (`nodeOnly` in __test__/support/system.mjs). */
export const reasons = {
  bun: {
    'drop-in': COMPARED,
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

/** The files that are not run in a runtime. */
export const leftOut = (runtime) => new Set(Object.keys(reasons[runtime] ?? {}).map(fileOf))

/** What every runtime must be able to do: runs, events, streams, cancel, terminals, registry, reaping, workers. */
const core = ['cancel', 'events', 'pty', 'reap', 'registry', 'run', 'runtimes', 'streams', 'workers'].map(
  fileOf,
)

/** In CI, `npm test` runs all files with the Node that is there. What matters in the others is what depends on the runtime. */
export const sample = () => core
