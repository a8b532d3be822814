// IPC between bot and command, over a channel of Node.
//
// Only `child_process.spawn` creates IPC channels; no public function creates one for a descriptor.
// So Node creates one for a helper process (the keeper's executable with the argument `lend`). The
// helper sends its end of the channel back to the bot and exits. The command gets that end like any
// other descriptor. The helper's ChildProcess remains as the channel: `send`, `disconnect`,
// serialization, handles and back-pressure are Node's.
//
// On Windows the same helper passes on sockets whose handle only Node knows.

import type { ChildProcess, spawn } from 'node:child_process'
import { Socket as DatagramSocket } from 'node:dgram'
import { closeSync } from 'node:fs'
import { Server, Socket } from 'node:net'
import { borrow, closeStream, endStream, openBorrowing, prepare, streamId } from '../native/addon.js'
import { codedError } from '../util/errors.js'
import { isWindows } from '../util/windows.js'

export interface BorrowedStream {
  /** The command's end, as a stdio slot. Call {@link release} when the command has it. */
  readonly slot: number
  release(): void
}

export interface BorrowedChannel extends BorrowedStream {
  readonly channel: ChildProcess
  /**
   * Ends the channel after the messages that were already sent. Call it when no process of the tree
   * exists: another process can still hold the other end.
   */
  end(): void
  /** Emits `exit` on the channel: its process, the command, has ended. */
  exited(code: number | null, signal: NodeJS.Signals | null): void
}

/** Creates an IPC channel. `nodeSpawn` is the original function of Node. */
export function borrowChannel(
  nodeSpawn: typeof spawn,
  keeper: string,
  serialization: 'json' | 'advanced',
): BorrowedChannel {
  const { helper: channel, ours } = startHelper(nodeSpawn, keeper, 'ipc', serialization)
  // Hide the exit of the helper. Node itself listens for `exit`, to count the connections that were
  // passed on.
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
      // The handle is open, so this descriptor is the channel's.
      const { fd: ourEnd } = channel.channel as { fd?: number }
      if (ourEnd === undefined) {
        channel.disconnect()
        return
      }
      const id = streamId(ourEnd)
      if (id !== null) endStream(ourEnd, id)
    },
    exited: (code, signal) => {
      ;(emit as EventEmit)('exit', code, signal)
    },
  }
}

/**
 * Passes a socket on as stdio of the command, on Windows.
 *
 * Only Node knows its handle, and Node passes it to the helper. Node also stops reading from the
 * socket. Node refuses a TCP connection with its own error.
 */
export function borrowSocket(nodeSpawn: typeof spawn, keeper: string, socket: Socket): BorrowedStream {
  const { helper, ours } = startHelper(nodeSpawn, keeper, socket, 'json')
  const { stream, slot } = lentBy(helper, ours, keeper)
  return { slot, release: () => closeStream(stream) }
}

/** Starts a helper. It gets `lent` as its descriptor 3, and sends it back over `ours`. */
function startHelper(
  nodeSpawn: typeof spawn,
  keeper: string,
  lent: 'ipc' | Socket,
  serialization: 'json' | 'advanced',
): { helper: ChildProcess; ours: number } {
  // Throws a better error than the helper if the keeper cannot be started.
  prepare()
  const [ours, theirs] = openBorrowing()
  try {
    const helper = nodeSpawn(keeper, ['lend'], {
      stdio: [theirs, 'ignore', 'ignore', lent],
      env: {},
      serialization,
      windowsHide: true,
    })
    // The helper exits right away. If it fails, the descriptor does not arrive. The ChildProcess
    // stays ref'ed, because `close` waits for its exit too.
    helper.on('error', () => {})
    return { helper, ours }
  } catch (error) {
    closeStream(ours)
    const { code } = error as NodeJS.ErrnoException
    throw lent !== 'ipc' && code === 'ENOTSUP' ? error : brokenKeeper(keeper, error)
  } finally {
    // Not with `closeSync` on Unix: in a worker, Node warns about a descriptor that it did not
    // open.
    if (isWindows) closeSync(theirs)
    else closeStream(theirs)
  }
}

function lentBy(helper: ChildProcess, ours: number, keeper: string): ReturnType<typeof borrow> {
  try {
    // A helper that could not be executed has no PID. `borrow` throws then.
    return borrow(ours, helper.pid ?? 0)
  } catch (error) {
    throw brokenKeeper(keeper, error)
  }
}

function brokenKeeper(keeper: string, error: unknown): Error {
  return codedError(
    Error,
    'ERR_OWNED_KEEPER_BROKEN',
    `The keeper ${keeper} did not start properly: it did not lend an IPC channel (${(error as Error).message}). ` +
      'Nothing was started. Reinstall spawn-owned.',
  )
}

/**
 * Makes `send` of the channel refuse handles on Windows.
 *
 * Windows sends a connection to a process, not to a channel, and Node has noted the helper as that
 * process. The helper has exited, and another process can have its PID. The other direction works:
 * the bot is the parent of the command.
 */
function refuseHandles(channel: ChildProcess): void {
  const send = channel.send.bind(channel) as (...args: unknown[]) => boolean
  channel.send = (...args: unknown[]) => {
    if (channel.connected && isSendable(args[1])) {
      throw codedError(
        Error,
        'ERR_OWNED_SEND_HANDLE',
        'Servers and connections cannot be sent to an owned command on Windows. Nothing was sent. ' +
          'Let the command listen or connect itself.',
      )
    }
    return send(...args)
  }
}

/**
 * Whether Node could send this handle. Node refuses all other objects itself.
 *
 * Node also accepts the internal objects behind the public classes. Only their names are known.
 */
function isSendable(handle: unknown): boolean {
  if (handle instanceof Server || handle instanceof Socket || handle instanceof DatagramSocket) return true
  return typeof handle === 'object' && /^(TCP|Pipe|UDP)$/.test(handle?.constructor?.name ?? '')
}

type EventEmit = (event: string | symbol, ...args: unknown[]) => boolean
