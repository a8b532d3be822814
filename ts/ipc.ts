// IPC between bot and command, over Node's own channel.
//
// Node makes its IPC channels in `child_process.spawn` only, and there is no public way to get one for a descriptor of
// one's own. So we let it make one for a helper (the keeper's executable in another role) that passes its end of the
// channel back to us and exits. That end then goes to the command through its keeper like any other descriptor, and
// the helper's ChildProcess, already exited, remains as the channel: `send`, `disconnect`, serialization, handles and
// back-pressure are Node's own.

import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { borrowedDescriptor, openBorrowing } from './native.js'

export interface BorrowedChannel {
  /** The command's end. To be closed by {@link release} once the command has it. */
  readonly fd: number
  readonly channel: ChildProcess
  release(): void
}

export function borrowChannel(keeper: string, serialization: 'json' | 'advanced'): BorrowedChannel {
  const [ours, theirs] = openBorrowing()
  let channel: ChildProcess
  try {
    channel = spawn(keeper, ['lend'], { stdio: [theirs, 'ignore', 'ignore', 'ipc'], env: {}, serialization })
  } finally {
    closeSync(theirs)
  }
  // It has done its work when it is gone; a failure shows when the descriptor does not come.
  channel.on('error', () => {})
  channel.unref()
  const fd = borrowedDescriptor(ours)
  return { fd, channel, release: () => closeSync(fd) }
}
