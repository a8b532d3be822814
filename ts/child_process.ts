// A drop-in for node:child_process: the same module with `spawn` owned.

import child_process from 'node:child_process'
import { spawnOwned } from './index.js'

export = { ...child_process, spawn: spawnOwned }
