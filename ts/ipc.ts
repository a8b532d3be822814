// IPC between bot and command, over Node's own channel.
//
// Node makes its IPC channels in `child_process.spawn` only, and there is no public way to get one for a descriptor of
// one's own. So we let it make one for a helper (the keeper's executable in another role) that passes its end of the
// channel back to us and exits. That end then goes to the command like any other descriptor, and the helper's
// ChildProcess, already exited, remains as the channel: `send`, `disconnect`, serialization, handles and back-pressure
// are Node's own.
//
// On Windows the same helper passes on sockets whose handle Node tells nobody.

import type { ChildProcess, spawn } from 'node:child_process'
import { Socket as DatagramSocket } from 'node:dgram'
import { closeSync } from 'node:fs'
import { Server, Socket } from 'node:net'
import { codedError } from './errors.js'
import { borrow, closeStream, endStream, openBorrowing, prepare } from './native.js'
import { isWindows } from './windows.js'

export interface BorrowedStream {
  /** The command's end, as its stdio names it. To be closed by {@link release} once the command has it. */
  readonly slot: number
  release(): void
}

export interface BorrowedChannel extends BorrowedStream {
  readonly channel: ChildProcess
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
  const { helper: channel, ours } = startHelper(nodeSpawn, keeper, 'ipc', serialization)
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

/**
 * A socket of Node's as the command's stdio. On Windows its handle is known to Node alone, who gives it to a helper like any other. Node
 * stops reading from the socket as well. What it refuses, a TCP connection, is refused in its own words.
 */
export function borrowSocket(nodeSpawn: typeof spawn, keeper: string, socket: Socket): BorrowedStream {
  const { helper, ours } = startHelper(nodeSpawn, keeper, socket, 'json')
  const { stream, slot } = lentBy(helper, ours, keeper)
  return { slot, release: () => closeStream(stream) }
}

/** It gets `lent` as its descriptor 3, which it passes back to us over `ours`. */
function startHelper(
  nodeSpawn: typeof spawn,
  keeper: string,
  lent: 'ipc' | Socket,
  serialization: 'json' | 'advanced',
): { helper: ChildProcess; ours: number } {
  // What is wrong with the keeper is better told by those who know it.
  prepare()
  const [ours, theirs] = openBorrowing()
  try {
    const helper = nodeSpawn(keeper, ['lend'], {
      stdio: [theirs, 'ignore', 'ignore', lent],
      env: {},
      serialization,
      windowsHide: true,
    })
    // It has done its work when it is gone, which is at once; a failure shows when the descriptor does not come. It stays
    // ref'ed: `close` waits for its exit too.
    helper.on('error', () => {})
    return { helper, ours }
  } catch (error) {
    closeStream(ours)
    const { code } = error as NodeJS.ErrnoException
    throw lent !== 'ipc' && code === 'ENOTSUP' ? error : brokenKeeper(keeper, error)
  } finally {
    // Not by Node where we can: in a worker it warns of a descriptor that it has not opened itself.
    if (isWindows) closeSync(theirs)
    else closeStream(theirs)
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
    if (channel.connected && isSendable(args[1])) {
      throw codedError(
        Error,
        'ERR_OWNED_SEND_HANDLE',
        'servers and connections cannot be sent to an owned command on Windows. Nothing was sent; have the command listen or connect itself.',
      )
    }
    return send(...args)
  }
}

/** Also what these are made of, which Node takes as well: internal classes, known by name only. Node refuses all others. */
function isSendable(handle: unknown): boolean {
  if (handle instanceof Server || handle instanceof Socket || handle instanceof DatagramSocket) return true
  return typeof handle === 'object' && /^(TCP|Pipe|UDP)$/.test(handle?.constructor?.name ?? '')
}

type EventEmit = (event: string | symbol, ...args: unknown[]) => boolean
