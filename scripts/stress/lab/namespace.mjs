/**
 * Plays a plan in a PID namespace and returns the facts. All processes of the round end with the
 * namespace.
 */

import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { program as fixture } from '../../../__test__/support/fixtures.mjs'
import { commands } from './commands.mjs'
import { makePidsLimit, removePidsLimit, unlimited } from './pids-limit.mjs'
import { buildPrograms, liar } from './programs.mjs'

const at = (path) => fileURLToPath(new URL(path, import.meta.url))
const program = at('./inside.mjs')
const bot = at('./bot.mjs')
const keeper = at('../../../native/spawn-owned-keeper')
/** Every wait of a round is shorter. The trees themselves end after 60 s. */
const LIMIT_MS = 120_000

const plain = ['--pid', '--fork', '--mount-proc', '--kill-child']
/** An unprivileged user can be root in a user namespace, if the system allows these. */
const ways = [plain, ['--user', '--map-root-user', ...plain]]
// The new namespace must have its own pid_max. Where all namespaces share one limit, the lab must
// not change it.
const trial =
  'test "$(cat /proc/sys/kernel/pid_max)" != "$1" && echo 300 >/proc/sys/kernel/ns_last_pid && mount -t tmpfs lab /mnt'

let way
let complaint = ''
for (const flags of process.platform === 'linux' ? ways : []) {
  const { status, stderr, error } = spawnSync('unshare', [...flags, 'sh', '-c', trial, 'sh', limitHere()])
  if (status === 0) {
    way = flags
    break
  }
  complaint ||=
    String(error ?? stderr).trim() ||
    'the new PID namespace has no pid_max of its own (Linux 6.14 or later has)'
}

/** Why the lab cannot run on this machine, or undefined. */
export const unavailable = way
  ? undefined
  : `it needs Linux and the right to create PID namespaces: ${complaint || 'this is not Linux'}`

function limitHere() {
  return String(spawnSync('cat', ['/proc/sys/kernel/pid_max']).stdout).trim()
}

let isReady = false
/** Compiles and checks everything before rounds run in parallel. */
function makeReady() {
  if (isReady) return
  buildPrograms()
  for (const name of ['stays', 'holds-lock']) fixture(name)
  for (const { command } of commands) command('witness')
  whyAllPrivileged = whyNoUnprivilegedUser()
  isReady = true
}

/**
 * User ids that no other process has. The kernel counts the processes of a user over all
 * namespaces, so each round uses another id.
 */
const FIRST_USER = 100_000_000
const USERS = 64
let users = 0
const nextUser = () => FIRST_USER + process.pid * USERS + (users++ % USERS)

/** Why no round has unprivileged bots, or undefined. Set by makeReady. */
let whyAllPrivileged
function whyNoUnprivilegedUser() {
  if (process.getuid() !== 0) return 'the lab is not root'
  const needed = [process.execPath, bot, liar, fixture('stays'), keeper, tmpdir()]
  const look = 'for file; do test -r "$file" || exit 1; done'
  const as = { uid: FIRST_USER, gid: FIRST_USER }
  if (spawnSync('sh', ['-c', look, 'sh', ...needed], as).status === 0) return undefined
  return 'other users cannot read the files of the bots, or their temporary folder'
}

/** What this machine lacks, in words. Steps that need it are skipped. */
export function lacks() {
  makeReady()
  return [
    ...(unlimited ? [`no pids limit: ${unlimited}`] : []),
    ...(whyAllPrivileged ? [`no unprivileged bots: ${whyAllPrivileged}`] : []),
  ]
}

/** `{ facts }`, or `{ trouble }` in words if the round did not end. */
export async function playInNamespace(plan) {
  makeReady()
  const user = plan.setting.isUnprivileged && !whyAllPrivileged ? nextUser() : undefined
  const pidsLimit = makePidsLimit()
  const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-lab-'))
  // The shell is the init of the namespace. It reaps orphans, otherwise no PID would become free.
  const session = plan.setting.ownSession ? ['setsid'] : []
  const command = [...way, 'sh', '-c', '"$@"; exit $?', 'sh', ...session, process.execPath, program]
  const enter = pidsLimit ? 'echo 0 >"$0/cgroup.procs"; exec "$@"' : 'exec "$@"'
  const inside = spawn('sh', ['-c', enter, pidsLimit ?? 'sh', 'unshare', ...command], {
    env: { ...process.env, TMPDIR: folder },
    stdio: ['pipe', 'pipe', 'pipe'],
    // Only the lab gets Ctrl-C.
    detached: true,
  })
  const end = () => inside.kill('SIGKILL')
  const clear = () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  // The namespace ends with the lab, also if the lab exits early.
  const leave = () => {
    end()
    clear()
  }
  process.on('exit', leave)
  const timer = setTimeout(end, LIMIT_MS)
  inside.stdin.on('error', () => {})
  inside.stdin.end(JSON.stringify({ plan, folder, user, pidsLimit }))
  try {
    const [said, complaint] = await Promise.all([text(inside.stdout), text(inside.stderr)])
    if (said === '')
      return { trouble: complaint.trim() || `the round did not end within ${LIMIT_MS / 1000} s` }
    return { facts: JSON.parse(said) }
  } finally {
    clearTimeout(timer)
    process.off('exit', leave)
    clear()
    if (pidsLimit) await removePidsLimit(pidsLimit)
  }
}
