// The decisions of `doctor` about the system. Pure.

import { isAbsolute, relative, sep } from 'node:path'

export interface Check {
  readonly name: string
  /** `missing`: an optional feature that this system does not have. */
  readonly status: 'ok' | 'missing' | 'warning' | 'failed'
  /** What was found, and what follows from it. */
  readonly detail: string
  /** What to do about it. */
  readonly advice?: string
}

/** The day on which each version of Node stops getting security fixes. */
const LAST_FIXES: Readonly<Record<number, string>> = {
  20: '2026-04-30',
  21: '2024-06-01',
  22: '2027-04-30',
  23: '2025-06-01',
  24: '2028-04-30',
  25: '2026-06-01',
  26: '2029-04-30',
}

/** Warns about a version of Node that is end-of-life. `version` is such as `24.1.0`. */
export function checkNode(version: string, nowMs: number): Check[] {
  const major = Number.parseInt(version, 10)
  const day = LAST_FIXES[major]
  if (day === undefined || nowMs < Date.parse(day)) return []
  return [
    {
      name: 'node',
      status: 'warning',
      detail: `Node ${major} is end-of-life: it has had no security fixes since ${day}.`,
      advice: 'Use an LTS version of Node, such as 24.',
    },
  ]
}

/** What `doctor` reads from /proc of Linux. */
export interface ProcFacts {
  /** The target of /proc/self. Undefined: /proc is not mounted. */
  readonly self: string | undefined
  readonly pid: number
  readonly isRoot: boolean
  readonly mounts: readonly Mount[]
}

const MOUNT_PROC = 'Mount the /proc of this PID namespace: unshare --mount-proc, or mount -t proc proc /proc.'

/** Checks that /proc shows the processes of this PID namespace, and hides none. */
export function checkProc({ self, pid, isRoot, mounts }: ProcFacts): Check {
  const name = '/proc'
  if (self === undefined)
    return {
      name,
      status: 'failed',
      detail: '/proc is not mounted, so no process can be identified, and no run can start.',
      advice: MOUNT_PROC,
    }
  if (self !== String(pid))
    return {
      name,
      status: 'failed',
      detail: `/proc shows another PID namespace: this process is ${pid} here and ${self} there. So no process can be identified, and no run can start.`,
      advice: MOUNT_PROC,
    }
  const hidden = mountOf('/proc', mounts)?.options.find((option) => /^hidepid=(?!0$|off$)/.test(option))
  if (hidden && !isRoot)
    return {
      name,
      status: 'warning',
      detail: `/proc is mounted with ${hidden}, so processes that change their user (sudo, setuid programs) are hidden. spawn-owned does not signal what it cannot identify.`,
      advice: 'Mount /proc without hidepid, or with gid= of a group of the bot.',
    }
  return { name, status: 'ok', detail: 'shows the processes of this PID namespace' }
}

export interface Mount {
  readonly path: string
  readonly options: readonly string[]
}

/** Parses /proc/self/mountinfo. */
export function parseMounts(mountinfo: string): Mount[] {
  return mountinfo.split('\n').flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ')
    const [, , , , path, options] = before.split(' ')
    const [, , superOptions] = after.split(' ')
    if (path === undefined || options === undefined) return []
    const decoded = path.replace(/\\(\d{3})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 8)))
    return [{ path: decoded, options: [...options.split(','), ...(superOptions ?? '').split(',')] }]
  })
}

/** Returns the mount that contains a path. The last of equal ones hides the others. */
export function mountOf(path: string, mounts: readonly Mount[]): Mount | undefined {
  const contains = (mount: string) => path === mount || path.startsWith(mount === '/' ? '/' : `${mount}/`)
  return mounts
    .filter((mount) => contains(mount.path))
    .reduce<Mount | undefined>(
      (best, it) => (best && best.path.length > it.path.length ? best : it),
      undefined,
    )
}

/** Reports a folder on a file system whose programs cannot be executed. */
export function checkNoexec(what: 'package' | 'registry', folder: string, mounts: readonly Mount[]): Check[] {
  const mount = mountOf(folder, mounts)
  if (!mount?.options.includes('noexec')) return []
  const place = `The ${what} is in ${folder}, and ${mount.path} is mounted with noexec.`
  const name = 'noexec'
  if (what === 'registry')
    return [
      {
        name,
        status: 'warning',
        detail: `${place} The registry works there, but a command of this file system fails with EACCES.`,
        advice: 'Keep the commands of your bot in another file system.',
      },
    ]
  return [
    {
      name,
      status: 'failed',
      detail: `${place} So its addon and its keeper cannot be executed.`,
      advice: `Install the package in another file system, or run: mount -o remount,exec ${mount.path}`,
    },
  ]
}

/** Limits of the user, as `process.report` has them: numbers or `unlimited`. */
export interface UserLimits {
  readonly open_files?: { readonly soft: string | number }
  readonly max_user_processes?: { readonly soft: string | number }
}

const [FEW_FILES, FEW_PROCESSES] = [1024, 1024]

/** Warns about low limits of files and processes. The second does not apply to root. */
export function checkLimits(limits: UserLimits, isRoot: boolean): Check[] {
  const files = Number(limits.open_files?.soft ?? Number.NaN)
  const processes = Number(limits.max_user_processes?.soft ?? Number.NaN)
  const checks: Check[] = []
  if (files < FEW_FILES)
    checks.push({
      name: 'open files',
      status: 'warning',
      detail: `A process can open ${files} files at most (RLIMIT_NOFILE). A bot needs several for each run, and starts of runs fail with EMFILE when none is left.`,
      advice: `Raise it to ${FEW_FILES} or more: ulimit -n, or LimitNOFILE= in a systemd unit.`,
    })
  if (processes < FEW_PROCESSES && !isRoot)
    checks.push({
      name: 'processes',
      status: 'warning',
      detail: `This user can have ${processes} processes and threads at most (RLIMIT_NPROC). Each run needs a helper process besides its command, and starts of runs fail with EAGAIN when none is left.`,
      advice: `Raise it to ${FEW_PROCESSES} or more: ulimit -u, or LimitNPROC= in a systemd unit.`,
    })
  return checks
}

/** Directories that nodemon and Vite do not watch. */
const NOT_WATCHED = new Set(['node_modules', '.git'])

/**
 * Warns if a file watcher that runs in `cwd` sees the registry.
 *
 * `ignored` are the patterns of `ignore` in the configuration of nodemon.
 */
export function checkWatchers(registryPath: string, cwd: string, ignored: readonly string[]): Check[] {
  const path = relative(cwd, registryPath)
  const parts = path.split(sep)
  const isOutside = path === '' || parts[0] === '..' || isAbsolute(path)
  if (isOutside || parts.some((part) => NOT_WATCHED.has(part))) return []
  if (ignored.some((pattern) => covers(pattern, parts))) return []
  const what = parts.length > 1 ? `${parts[0]}/` : path
  return [
    {
      name: 'watchers',
      status: 'warning',
      detail: `The registry ${path} is in the current directory, and changes with each run. nodemon, pm2 --watch and Vite watch this directory; nodemon and pm2 restart the bot at each change. node --watch and tsx watch ignore the registry.`,
      advice: `Ignore ${what} (nodemon: --ignore ${what}, pm2: ignore_watch, Vite: server.watch.ignored), or set SPAWN_OWNED_REGISTRY to a path outside of this directory.`,
    },
  ]
}

// Such as `data/`, `./data`, `data/*`, or the same with `**/` before it.
/** Whether a pattern of nodemon names a folder of the path, or the file. */
function covers(pattern: string, parts: readonly string[]): boolean {
  const folder = pattern.replace(/^(\.\/|\*\*\/)+/, '').replace(/(\/\*{0,2})+$/, '')
  const starts = parts.map((_, index) => parts.slice(0, index + 1).join('/'))
  return folder !== '' && (starts.includes(folder) || (pattern.startsWith('**/') && parts.includes(folder)))
}
