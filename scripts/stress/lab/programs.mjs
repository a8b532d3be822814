/** The C programs of the lab's faults. Built before the rounds, which run in parallel. */

import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { root } from '../../tools.mjs'

const built = (name) => join(root, 'target', 'stress', name)
const sourceOf = (name) => fileURLToPath(new URL(`./faults/${name}`, import.meta.url))

/** Preloaded into the bots, see lies.mjs. */
export const liar = built('lies.so')
/** See faults/user-limit.mjs. */
export const limiter = built('limit-user')

export function buildPrograms() {
  build(liar, sourceOf('lies.c'), '-shared', '-fPIC', '-ldl')
  build(limiter, sourceOf('limit-user.c'))
}

function build(program, source, ...flags) {
  const made = statSync(program, { throwIfNoEntry: false })?.mtimeMs ?? 0
  if (made > statSync(source).mtimeMs) return
  mkdirSync(dirname(program), { recursive: true })
  const unfinished = `${program}.${process.pid}`
  execFileSync('cc', ['-O1', '-Wall', '-Wextra', '-o', unfinished, source, ...flags])
  renameSync(unfinished, program)
}
