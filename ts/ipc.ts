// IPC between bot and command, over Node's own channel.
//
// Node makes its IPC channels in `child_process.spawn` only, and there is no public way to get one for a descriptor of
// one's own. So we let it make one for a helper (the keeper's executable in another role) that passes its end of the
// channel back to us and exits. That end then goes to the command through its keeper like any other descriptor, and
// the helper's ChildProcess, already exited, remains as the channel: `send`, `disconnect`, serialization, handles and
// back-pressure are Node's own.

import type { ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { codedError } from './errors.js'
import { borrowedDescriptor, endStream, openBorrowing, prepare } from './native.js'

export interface BorrowedChannel {
  /** The command's end. To be closed by {@link release} once the command has it. */
  readonly fd: number
  readonly channel: ChildProcess
  release(): void
  /** The tree is extinct: what was sent is still delivered, then the channel ends, whoever else may hold its other end. */
  end(): void
  /** Tells whoever has attached to the channel that its process, the command, has ended. */
  exited(code: number | null, signal: NodeJS.Signals | null): void
}

/** `nodeSpawn` is Node's own, whatever the bot has put in its place since. */
export function borrowChannel(
  nodeSpawn: typeof spawn,
  keeper: string,
  serialization: 'json' | 'advanced',
): BorrowedChannel {
  // What is wrong with the keeper is better told by those who know it.
  prepare()
  const [ours, theirs] = openBorrowing()
  let channel: ChildProcess
  try {
    channel = nodeSpawn(keeper, ['lend'], {
      stdio: [theirs, 'ignore', 'ignore', 'ipc'],
      env: {},
      serialization,
    })
  } finally {
    closeSync(theirs)
  }
  // It has done its work when it is gone, which is at once; a failure shows when the descriptor does not come. It stays
  // ref'ed: `close` waits for its exit too.
  channel.on('error', () => {})
  // The helper's own exit is nobody's business. Node itself listens for it, to count the connections that were passed on.
  const emit = channel.emit.bind(channel)
  channel.emit = (event: string | symbol, ...args: unknown[]) =>
    event === 'exit' ? false : (emit as EventEmit)(event, ...args)
  const fd = lentDescriptor(ours, keeper)
  return {
    fd,
    channel,
    release: () => closeSync(fd),
    end() {
      if (!channel.connected) return
      const { fd: ourEnd } = channel.channel as { fd?: number }
      if (ourEnd === undefined) channel.disconnect()
      else endStream(ourEnd)
    },
    exited: (code, signal) => {
      ;(emit as EventEmit)('exit', code, signal)
    },
  }
}

function lentDescriptor(ours: number, keeper: string): number {
  try {
    return borrowedDescriptor(ours)
  } catch (error) {
    throw codedError(
      Error,
      'ERR_OWNED_KEEPER_BROKEN',
      `the keeper ${keeper} did not start properly: it did not lend an IPC channel (${(error as Error).message}). Nothing was started; reinstall spawn-owned.`,
    )
  }
}

type EventEmit = (event: string | symbol, ...args: unknown[]) => boolean
