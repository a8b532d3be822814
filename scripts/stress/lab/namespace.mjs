/** Plays a plan in a PID namespace, which takes everybody along when it ends, and returns the facts. */

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
/** Nothing of a round is left to wait for by then; the trees themselves end after 60 s. */
const LIMIT_MS = 120_000

const plain = ['--pid', '--fork', '--mount-proc', '--kill-child']
/** Who is not root may be so in a user namespace, where the system allows that. */
const ways = [plain, ['--user', '--map-root-user', ...plain]]
// A machine that has one limit for all namespaces is not to be touched: the new namespace must have one of its own.
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
  complaint ||= String(error ?? stderr).trim() || 'pid_max is not its own there (Linux 6.14 has that)'
}

/** Why the lab cannot be played here, or undefined. */
export const unavailable = way
  ? undefined
  : `it takes Linux, and PID namespaces of one's own: ${complaint || 'this is no Linux'}`

function limitHere() {
  return String(spawnSync('cat', ['/proc/sys/kernel/pid_max']).stdout).trim()
}

let isReady = false
/** What forks and compilers are needed for, before there are rounds side by side. */
function makeReady() {
  if (isReady) return
  buildPrograms()
  for (const name of ['stays', 'holds-lock']) fixture(name)
  for (const { command } of commands) command('witness')
  nobody = whyNobody()
  isReady = true
}

/** Numbers that are nobody's. The kernel counts the processes of each, in all namespaces together: so every round has another one. */
const FIRST_USER = 100_000_000
const USERS = 64
let users = 0
const nextUser = () => FIRST_USER + process.pid * USERS + (users++ % USERS)

/** Why no round is played by bots without privileges, or undefined. Known when the lab is ready. */
let nobody
function whyNobody() {
  if (process.getuid() !== 0) return 'the lab is not root'
  const needed = [process.execPath, bot, liar, fixture('stays'), keeper, tmpdir()]
  const look = 'for file; do test -r "$file" || exit 1; done'
  const as = { uid: FIRST_USER, gid: FIRST_USER }
  if (spawnSync('sh', ['-c', look, 'sh', ...needed], as).status === 0) return undefined
  return 'others cannot read what the bots are made of, or where they are to work'
}

/** What cannot be had here, in words; steps that need it are moot. */
export function lacks() {
  makeReady()
  return [
    ...(unlimited ? [`no pids limits: ${unlimited}`] : []),
    ...(nobody ? [`no bots without privileges: ${nobody}`] : []),
  ]
}

/** `{ facts }`, or `{ trouble }` in words if the round came to no end. */
export async function playInNamespace(plan) {
  makeReady()
  const user = plan.setting.isUnprivileged && !nobody ? nextUser() : undefined
  const pidsLimit = makePidsLimit()
  const folder = mkdtempSync(join(tmpdir(), 'spawn-owned-lab-'))
  // The shell is the namespace's init: it reaps those that have lost their parents, else no number would become free.
  const session = plan.setting.ownSession ? ['setsid'] : []
  const command = [...way, 'sh', '-c', '"$@"; exit $?', 'sh', ...session, process.execPath, program]
  const enter = pidsLimit ? 'echo 0 >"$0/cgroup.procs"; exec "$@"' : 'exec "$@"'
  const inside = spawn('sh', ['-c', enter, pidsLimit ?? 'sh', 'unshare', ...command], {
    env: { ...process.env, TMPDIR: folder },
    stdio: ['pipe', 'pipe', 'pipe'],
    // Ctrl-C is for us.
    detached: true,
  })
  const end = () => inside.kill('SIGKILL')
  const clear = () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  // The namespace goes with us, also if somebody is in a hurry.
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
    if (said === '') return { trouble: complaint.trim() || 'the round came to no end' }
    return { facts: JSON.parse(said) }
  } finally {
    clearTimeout(timer)
    process.off('exit', leave)
    clear()
    if (pidsLimit) await removePidsLimit(pidsLimit)
  }
}
