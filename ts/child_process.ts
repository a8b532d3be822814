// `spawn-owned/child_process`: a drop-in for node:child_process. Its asynchronous functions start
// owned runs. See docs/child_process.md.

import child_process from 'node:child_process'
import { exec, execFile } from './adapters/exec.js'
import { fork } from './adapters/fork.js'
import { spawn } from './adapters/spawn.js'

export = { ...child_process, spawn, fork, exec, execFile }
