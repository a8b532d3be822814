// `spawn-owned/acp`: a connection to an agent of the Agent Client Protocol, over an owned run.

import { startAgent } from './adapters/acp.js'

export = { startAgent }
