/** Somebody who is no bot uses the command line. */

import { spawnOwnedCli } from '../../../../__test__/support/cli.mjs'
import { beginReap } from '../reaping.mjs'

const WHO = 'the command line'
/** Done; done but for what is left; nothing matches. */
const CODES = [0, 1, 3]

/** `heard(answer)` is called with what it has printed. */
async function run(stage, args, { heard, over }) {
  const before = stage.forksFailed
  try {
    let forget
    const started = (child) => (forget = stage.followOther(child))
    const options = { ...stage.asUser, started }
    const done = await spawnOwnedCli(stage.registryPath, [...args, '--json'], options)
    forget()
    const { code, stdout, stderr } = done
    // Node itself comes to such an end if it gets no thread.
    if (code === null && stage.forksFailed !== before) return { outcome: 'bot gone' }
    if (!CODES.includes(code)) return { outcome: 'refused', message: `exit code ${code}: ${stderr}` }
    if (stdout !== '') heard(done.json())
    else if (stderr === '') return { outcome: 'refused', message: `exit code ${code}, and not a word` }
    return { outcome: 'done' }
  } catch (error) {
    return { outcome: 'refused', code: error.code, message: String(error) }
  } finally {
    over?.()
  }
}

const errand = (stage, args, how, awaited) =>
  stage.errand(WHO, args.join(' '), run(stage, args, how), { awaited })

export const commandLineMoves = [
  {
    name: 'cli-cancel',
    weight: 1,
    draw(draft) {
      const target = draft.run()
      return target && { run: target.name, awaited: draft.dice.chance(0.5) }
    },
    tell: ({ run: name }) => `spawn-owned cancel ${name}`,
    play(stage, { run: name, awaited }) {
      if (stage.cannotFork) return false
      const over = stage.during((it) => it.name === name, 'cancel')
      const heard = ({ results }) =>
        stage.claimAll(
          `${WHO}'s cancel`,
          results.flatMap(({ exits }) => exits),
        )
      return errand(stage, ['cancel', name], { heard, over }, awaited)
    },
  },
  {
    name: 'cli-reap',
    weight: 1,
    draw: ({ dice }) => ({ dryRun: dice.chance(0.2), awaited: dice.chance(0.5) }),
    tell: ({ dryRun }) => `spawn-owned reap${dryRun ? ' --dry-run' : ''}`,
    play(stage, { dryRun, awaited }) {
      if (stage.cannotFork) return false
      const args = dryRun ? ['reap', '--dry-run'] : ['reap']
      return errand(stage, args, beginReap(stage, WHO, { dryRun }), awaited)
    },
  },
  {
    name: 'cli-ps',
    weight: 1,
    draw: ({ dice }) => ({ awaited: dice.chance(0.5) }),
    tell: () => 'spawn-owned ps',
    play(stage, { awaited }) {
      if (stage.cannotFork) return false
      const isRecorded = (it) => it.mustBeRecorded && !it.registryLost && it.isAlive()
      const before = [...stage.runs.values()].filter(isRecorded)
      const heard = ({ runs }) => {
        const shown = new Set(runs.map(({ runId }) => runId))
        for (const it of before.filter(isRecorded))
          if (!shown.has(it.name)) it.wasMissing(`alive, and spawn-owned ps did not show it`)
      }
      return errand(stage, ['ps'], { heard }, awaited)
    },
  },
]
