// IPC between bot and command, over Node's own channel.
//
// Node makes its IPC channels in `child_process.spawn` only, and there is no public way to get one for a descriptor of
// one's own. So we let it make one for a helper (the keeper's executable in another role) that passes its end of the
// channel back to us and exits. That end then goes to the command like any other descriptor, and the helper's
// ChildProcess, already exited, remains as the channel: `send`, `disconnect`, serialization, handles and back-pressure
// are Node's own.

import type { ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import { Server, Socket } from 'node:net'
import { codedError } from './errors.js'
import { borrow, closeStream, endStream, openBorrowing, prepare } from './native.js'
import { isWindows } from './windows.js'

export interface BorrowedChannel {
  /** The command's end, as its stdio names it. To be closed by {@link release} once the command has it. */
  readonly slot: number
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
      windowsHide: true,
    })
  } catch (error) {
    closeStream(ours)
    throw brokenKeeper(keeper, error)
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
  const { stream, slot } = lentBy(channel, ours, keeper)
  if (isWindows) refuseHandles(channel)
  return {
    slot,
    channel,
    release: () => closeStream(stream),
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

function lentBy(helper: ChildProcess, ours: number, keeper: string): ReturnType<typeof borrow> {
  try {
    // Without a PID it could not be executed, and our end says so.
    return borrow(ours, helper.pid ?? 0)
  } catch (error) {
    throw brokenKeeper(keeper, error)
  }
}

function brokenKeeper(keeper: string, error: unknown): Error {
  return codedError(
    Error,
    'ERR_OWNED_KEEPER_BROKEN',
    `the keeper ${keeper} did not start properly: it did not lend an IPC channel (${(error as Error).message}). Nothing was started; reinstall spawn-owned.`,
  )
}

/**
 * On Windows a connection is sent to a process, not to a channel, and Node has written down the helper as the process at the other end.
 * By now it is gone, and its PID perhaps somebody else's. What the command sends comes to us: we are its parent.
 */
function refuseHandles(channel: ChildProcess): void {
  const send = channel.send.bind(channel) as (...args: unknown[]) => boolean
  channel.send = (...args: unknown[]) => {
    const handle = args[1]
    if (channel.connected && (handle instanceof Server || handle instanceof Socket)) {
      throw codedError(
        Error,
        'ERR_OWNED_SEND_HANDLE',
        'servers and connections cannot be sent to an owned command on Windows. Nothing was sent; have the command listen or connect itself.',
      )
    }
    return send(...args)
  }
}

type EventEmit = (event: string | symbol, ...args: unknown[]) => boolean
