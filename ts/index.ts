// The package's entry point. Its types are index.d.ts at the repository's root.

import type * as Public from '../index.js'
import { cancel as cancelRuns } from './runs.js'
import { spawnOwned as spawn } from './spawn.js'

export const spawnOwned: typeof Public.spawnOwned = spawn
export const cancel: typeof Public.cancel = cancelRuns
