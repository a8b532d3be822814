// close: shuts a supervisor down and releases its thread, its file descriptors and its memory.

import type { ShutdownOptions } from '../../index.js'
import { readShutdownOptions, shutdown } from './shutdown.js'
import type { SupervisorContext } from './supervisor-context.js'

const inProgress = new WeakMap<SupervisorContext, Promise<void>>()

/** Closes a supervisor. A second call returns the first promise, and can shorten its grace. */
export async function close(context: SupervisorContext, options: ShutdownOptions | undefined): Promise<void> {
  const settings = readShutdownOptions(options)
  const earlier = inProgress.get(context)
  if (earlier) {
    if (context.closing) void shutdown(context, settings)
    return earlier
  }
  const closing = begin(context, () => shutdown(context, settings))
  inProgress.set(context, closing)
  return closing
}

async function begin(context: SupervisorContext, end: () => Promise<unknown>): Promise<void> {
  context.closed = true
  try {
    await end()
  } catch (error) {
    // The shutdown terminated nothing, for example because no file descriptor was left. The
    // supervisor is open again, and the caller can retry.
    context.closed = false
    inProgress.delete(context)
    throw error
  }
  // Wait before the release: these calls send signals, and use plans that the registry drops then.
  // The set does not grow: every method throws now.
  await Promise.all(context.reaping)
  await context.release()
}
