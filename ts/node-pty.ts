// `spawn-owned/node-pty`: the interface of node-pty over an owned run.

import { spawn } from './adapters/node-pty.js'

export = { spawn, fork: spawn, createTerminal: spawn }
