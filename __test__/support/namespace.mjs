// A new PID namespace: low PIDs, and PIDs that can be chosen. Needs root, and a system that allows
// it.
import { spawnSync } from 'node:child_process'
import { options } from './prelude.mjs'

/**
 * Prefix of a command line that runs the rest in a new PID namespace. The namespace ends with it.
 */
export const namespace = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child']

const [command, ...args] = namespace
const trial = spawnSync(command, [...args, 'sh', '-c', 'echo 300 >/proc/sys/kernel/ns_last_pid'])

/** Why tests that need one are skipped, or false. */
export const withoutNamespace =
  trial.status !== 0 && `needs root and PID namespaces: ${String(trial.error ?? trial.stderr).trim()}`

/** Options of a test that needs one. */
export const inNamespace = { ...options, skip: withoutNamespace }
