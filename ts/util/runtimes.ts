// The differences between the runtimes Node, Deno and Bun. No other file depends on the runtime.

import type net from 'node:net'
import { codedError } from './errors.js'

const isBun = 'bun' in process.versions
const isDeno = 'deno' in process.versions

/** Whether the runtime is Node. Deno and Bun also have `process.versions.node`. */
export const isNode = !isBun && !isDeno

let onMainThread: boolean | undefined

/**
 * Whether this is the main thread. Loads node:worker_threads at the first call: it is slow to load.
 */
export function isMainThread(): boolean {
  onMainThread ??= (require('node:worker_threads') as typeof import('node:worker_threads')).isMainThread
  return onMainThread
}

/**
 * Creates a socket over a file descriptor, with `make`. The socket owns the descriptor then.
 *
 * The socket does not read until its user reads from it. Node and Deno take the descriptor in the
 * constructor. In Bun such a socket could only write. There the socket connects to the descriptor,
 * as Bun's child_process does for pipes beyond stderr.
 */
export function overDescriptor<S extends net.Socket>(
  fd: number,
  readable: boolean,
  make: (options: net.SocketConstructorOpts) => S,
): S {
  if (!isBun) return make({ fd, readable, writable: true, manualStart: true } as net.SocketConstructorOpts)
  const socket = make({})
  socket.connect({ fd } as unknown as net.SocketConnectOpts)
  return socket
}

/**
 * Calls `callback` before the native addon becomes unusable at exit.
 *
 * Only Deno needs this: it drops native objects first, and runs pending JavaScript after that. Node
 * and Bun run no JavaScript then.
 */
export function beforeNativeIsGone(callback: () => void): void {
  // Not `exit`: Deno's test runner does not emit it.
  if (isDeno) (globalThis as unknown as EventTarget).addEventListener('unload', callback)
}

/** Throws if the runtime cannot create an IPC channel for a command. Only Node can (see ipc.ts). */
export function refuseChannelsOutsideNode(): void {
  if (isNode) return
  throw codedError(
    Error,
    'ERR_OWNED_RUNTIME',
    "options.stdio contains 'ipc', which needs Node, and this is another runtime. Nothing was started. " +
      'Use a pipe to communicate with the command.',
  )
}
