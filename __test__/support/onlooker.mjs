// Who is there, as the kernel shows it: an eye that has nothing to do with ours, for programs that hold no witness. Linux only.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { isHelper, until } from './bots.mjs'

/**
 * Everybody who names this folder in its arguments or its environment, but our helpers. To be given to a tree as its home: programs that
 * overwrite their environment, as browsers' helpers do, name it in their arguments.
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

export function assertNobodyNames(folder) {
  const left = whoNames(folder).map(({ pid, line }) => `  ${pid} ${line.slice(0, 200)}`)
  assert.deepEqual(left, [], `processes exist:\n${left.join('\n')}`)
}

/** For the end of a test, which may have failed and left somebody. */
export async function endWhoNames(folder) {
  const end = ({ pid }) => quietly(() => process.kill(pid, 'SIGKILL'))
  await until(() => whoNames(folder).map(end).length === 0, `nobody names ${folder}`)
}

const read = (pid, file) => readFileSync(`/proc/${pid}/${file}`, 'utf8')

function quietly(look) {
  try {
    return look()
  } catch {
    return undefined
  }
}
