// Processes as the kernel shows them, for programs that hold no witness. Independent of the
// product. Linux only.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { isHelper, until } from './bots.mjs'

/**
 * All processes with this folder in their arguments or environment, except our helpers. A tree gets
 * the folder as its home. Programs that overwrite their environment, such as browser helpers, have
 * it in their arguments.
 */
export function whoNames(folder) {
  const names = (pid, file) => quietly(() => read(pid, file).includes(folder))
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid) && (names(pid, 'cmdline') || names(pid, 'environ')))
    .map((pid) => ({
      pid: Number(pid),
      line: quietly(() => read(pid, 'cmdline').replaceAll('\0', ' ')) ?? '',
    }))
    .filter(({ pid }) => !isHelper(pid))
}

export function assertNoProcessNames(folder) {
  const left = whoNames(folder).map(({ pid, line }) => `  ${pid} ${line.slice(0, 200)}`)
  assert.deepEqual(left, [], `processes exist:\n${left.join('\n')}`)
}

/** Ends such processes after a test, which may have failed. */
export async function endWhoNames(folder) {
  const end = ({ pid }) => quietly(() => process.kill(pid, 'SIGKILL'))
  await until(() => whoNames(folder).map(end).length === 0, `no process names ${folder}`)
}

const read = (pid, file) => readFileSync(`/proc/${pid}/${file}`, 'utf8')

function quietly(look) {
  try {
    return look()
  } catch {
    return undefined
  }
}
