import { unavailable } from '../../__test__/support/cgroups.mjs'
import { hostileTrees } from '../../__test__/support/hostile-trees.mjs'
import { playWith } from './all-killed.mjs'

export const what = 'the same with runs in cgroups: reapOrphans ends every process of the run'
export const full = 200

export async function play(loop) {
  if (unavailable) return console.log(`skipped: ${unavailable}`)
  await playWith(loop, hostileTrees, 'cgroup')
}
