// What differs between the runtimes that run us: Node, Deno, Bun. Nothing else in here knows which one it is.

import type net from 'node:net'
import { codedError } from './errors.js'

const isBun = 'bun' in process.versions
const isDeno = 'deno' in process.versions

/** Deno and Bun give a version of Node as well: the one that they are like. */
export const isNode = !isBun && !isDeno

let onMainThread: boolean | undefined

/** Asked when it matters: what knows it takes a while to load. */
export function isMainThread(): boolean {
  onMainThread ??= (require('node:worker_threads') as typeof import('node:worker_threads')).isMainThread
  return onMainThread
}

/**
 * A socket over a descriptor, made by `make`, that is not read from before somebody asks for that. It has the descriptor from here on.
 *
 * Node and Deno take the descriptor when the socket is made. Bun would only write to it then; there a socket connects to a descriptor,
 * as Bun's own child_process has it do for pipes beyond stderr.
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
 * Calls back when nothing native may be touched any more. In Node and Bun nobody is left then who could; Deno drops what is native first, and
 * runs what else was about to be run afterwards.
 */
export function beforeNativeIsGone(callback: () => void): void {
  // Not `exit`, which its test runner does not tell.
  if (isDeno) (globalThis as unknown as EventTarget).addEventListener('unload', callback)
}

/** Node can make a channel for somebody else (see ipc.ts). The others have none that could be lent. */
export function refuseChannelsElsewhere(): void {
  if (isNode) return
  throw codedError(
    Error,
    'ERR_OWNED_RUNTIME',
    "options.stdio has 'ipc', which needs Node; this is another runtime. Nothing was started; talk with the command over a pipe.",
  )
}
