// A disk of 64 KiB that a test can fill or make read-only. Needs root.
import { spawnSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Mounts it at `directory`, which is created. `undefined`, and the test is skipped, if that fails.
 */
export function mountSmallDisk(t, directory) {
  mkdirSync(directory, { recursive: true })
  const failure = run('mount', ['-t', 'tmpfs', '-o', 'size=64k,mode=700', 'small-disk', directory])
  if (failure) {
    t.skip(`needs to mount a disk: ${failure}`)
    return undefined
  }
  return new SmallDisk(directory)
}

class SmallDisk {
  constructor(directory) {
    this.directory = directory
    this.filler = join(directory, 'filler')
  }

  /** Fills it to the last byte. */
  fill() {
    const file = openSync(this.filler, 'w')
    const block = Buffer.alloc(4096)
    try {
      for (;;) writeSync(file, block)
    } catch (error) {
      if (error.code !== 'ENOSPC') throw error
    } finally {
      closeSync(file)
    }
  }

  free() {
    rmSync(this.filler)
  }

  makeReadOnly() {
    must(run('mount', ['-o', 'remount,ro', this.directory]))
  }

  /** Fails while a process has a file open there. */
  unmount() {
    must(run('umount', [this.directory]))
  }

  /** For the end of a test, also of a failed one. */
  release() {
    run('umount', ['-l', this.directory])
  }
}

function run(command, args) {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' })
  return status === 0 ? undefined : `${command} ${args.join(' ')}: ${error?.message ?? stderr.trim()}`
}

function must(failure) {
  if (failure) throw new Error(failure)
}
