// A real systemd, independent of the machine's own: PID 1 of its own namespaces, in its own cgroup,
// without a network, with only the services of the test. Needs root.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { childrenOf, until } from './bots.mjs'
import { base, isEmpty, killAll, moveInto, unavailable } from './cgroups.mjs'
import { withoutNamespace } from './namespace.mjs'
import { isLinux, removeFolder } from './system.mjs'

const SYSTEMD = '/lib/systemd/systemd'

/** Why tests that need it are skipped, or false. */
export const withoutSystemd =
  (!isLinux && 'only Linux has systemd') ||
  (!existsSync(SYSTEMD) && 'needs systemd, which is not installed') ||
  withoutNamespace ||
  unavailable

/** On a busy machine it takes a while. */
const STANDS_MS = 60_000

// What it would change on the machine is hidden or read-only. Its PIDs start where reapers may
// signal.
const BOOT = `
mount --make-rprivate /
for folder in /run /etc/systemd/system /var/lib; do mount -t tmpfs tmpfs "$folder"; done
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo 300 >/proc/sys/kernel/ns_last_pid
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mkdir -p /run/lock /run/systemd/system
cp "$1"/* /run/systemd/system
exec env -i container=test PATH="$PATH" ${SYSTEMD} --system --unit=nothing.target --log-target=null --show-status=no
`

/**
 * Boots it for the test `t`, with these services: by name, the content of their section
 * `[Service]`.
 */
export async function bootSystemd(t, services) {
  const cgroup = join(base, `systemd-${process.pid}`)
  const units = writeUnits(services)
  mkdirSync(cgroup)
  // It must be in its cgroup before it gets a cgroup namespace.
  const line =
    'read -r _; exec unshare --mount --pid --fork --mount-proc --uts --ipc --net --cgroup --kill-child "$@"'
  const child = spawn('sh', ['-c', line, 'sh', 'sh', '-c', BOOT, 'sh', units], {
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  t.after(async () => {
    killAll(cgroup)
    await until(() => isEmpty(cgroup), 'all its processes have ended')
    removeCgroup(cgroup)
    removeFolder(units)
  })
  moveInto(cgroup, child.pid)
  child.stdin.end('\n')

  const [pid] = await until(() => nonEmpty(childrenOf(child.pid)), 'it has started', STANDS_MS)
  const systemd = new Systemd(pid, cgroup)
  await until(() => systemd.isUp(), 'systemd is up', STANDS_MS)
  return systemd
}

function writeUnits(services) {
  const folder = mkdtempSync(join(tmpdir(), 'units-'))
  const write = (name, text) => writeFileSync(join(folder, name), `[Unit]\nDefaultDependencies=no\n${text}\n`)
  write('nothing.target', 'AllowIsolate=yes')
  for (const [name, text] of Object.entries(services)) write(`${name}.service`, `[Service]\n${text}`)
  return folder
}

function removeCgroup(directory) {
  for (const entry of readdirSync(directory, { withFileTypes: true }))
    if (entry.isDirectory()) removeCgroup(join(directory, entry.name))
  rmdirSync(directory)
}

class Systemd {
  #inside
  #cgroup

  constructor(pid, cgroup) {
    this.#inside = ['-t', pid, '-m', '-p', '-u', '-i', '-n', '-C'].map(String)
    this.#cgroup = cgroup
  }

  isUp() {
    return spawnSync('nsenter', [...this.#inside, 'systemctl', 'is-system-running']).status === 0
  }

  systemctl(...args) {
    return this.run('systemctl', ...args)
  }

  /** Runs a command inside its namespaces. */
  run(...command) {
    return execFileSync('nsenter', [...this.#inside, ...command], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  }

  property(service, name) {
    return this.systemctl('show', '--property', name, '--value', service).trim()
  }

  /**
   * The command lines of the processes in the cgroup of a service, as the kernel of this system
   * shows them.
   */
  members(service) {
    const procs = join(this.#cgroup, 'system.slice', `${service}.service`, 'cgroup.procs')
    if (!existsSync(procs)) return []
    const pids = readFileSync(procs, 'utf8').trim().split('\n').filter(Boolean)
    return pids.map((pid) => commandLine(pid)).filter(Boolean)
  }
}

function commandLine(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
  } catch {
    return ''
  }
}

const nonEmpty = (list) => list.length > 0 && list
