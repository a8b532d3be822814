// A disk of 64 KiB that a test can fill, or make read-only. Needs root; says why if it cannot be had.
import { spawnSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'

/** Mounted at `directory`, which is made; `undefined`, and the test is skipped, if that cannot be done. */
export function mountSmallDisk(t, directory) {
  mkdirSync(directory, { recursive: true })
  const failure = run('mount', ['-t', 'tmpfs', '-o', 'size=64k,mode=700', 'small-disk', directory])
  if (failure) {
    t.skip(`needs a disk of its own: ${failure}`)
    return undefined
  }
  return new SmallDisk(directory)
}

class SmallDisk {
  constructor(directory) {
    this.directory = directory
    this.filler = join(directory, 'filler')
  }

  /** Until not one byte more can be had. */
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

  /** Fails if anybody still has something open there. */
  unmount() {
    must(run('umount', [this.directory]))
  }

  /** For the end of a test, also of one that has failed. */
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
