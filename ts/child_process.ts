// A drop-in for node:child_process: the same module with every function owned that does not block. See docs/child_process.md.

import child_process from 'node:child_process'
import { exec, execFile } from './exec.js'
import { fork } from './fork.js'
import { spawnOwned } from './index.js'

export = { ...child_process, spawn: spawnOwned, fork, exec, execFile }
