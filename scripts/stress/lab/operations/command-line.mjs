/** A process that is not a bot uses the command line. */

import { spawnOwnedCli } from '../../../../__test__/support/cli.mjs'
import { beginReap } from '../reaping.mjs'

const WHO = 'the command line'
/** Exit codes: done; processes are left; nothing matches. */
const CODES = [0, 1, 3]
/** Exit code: a part of the registry cannot be read. Expected only after the lab has damaged it. */
const UNREADABLE = 4

/** `onResult(answer)` gets the parsed output. */
async function run(stage, args, { onResult, over }) {
  const before = stage.forksFailed
  try {
    let forget
    const started = (child) => (forget = stage.followOther(child))
    const options = { ...stage.asUser, started }
    const done = await spawnOwnedCli(stage.registryPath, [...args, '--json'], options)
    forget()
    const { code, stdout, stderr } = done
    // Node itself aborts like this if it gets no thread.
    if (code === null && stage.forksFailed !== before) return { outcome: 'bot gone' }
    const isExpected =
      CODES.includes(code) || (code === UNREADABLE && stage.registryReads.vandalism !== undefined)
    if (!isExpected) return { outcome: 'refused', message: `exit code ${code}: ${stderr}` }
    if (stdout !== '') onResult(done.json())
    else if (stderr === '') return { outcome: 'refused', message: `exit code ${code}, and no output` }
    return { outcome: 'done' }
  } catch (error) {
    return { outcome: 'refused', code: error.code, message: String(error) }
  } finally {
    over?.()
  }
}

const request = (stage, args, how, awaited) =>
  stage.outsideOrder(WHO, args.join(' '), run(stage, args, how), { awaited })

export const commandLineMoves = [
  {
    name: 'cli-cancel',
    weight: 1,
    draw(draft) {
      const target = draft.run()
      return target && { run: target.name, awaited: draft.dice.chance(0.5) }
    },
    describe: ({ run: name }) => `spawn-owned cancel ${name}`,
    play(stage, { run: name, awaited }) {
      if (stage.cannotFork) return false
      const over = stage.during((it) => it.name === name, 'cancel')
      const onResult = ({ results }) =>
        stage.claimAll(
          `${WHO}'s cancel`,
          results.flatMap(({ exits }) => exits),
        )
      return request(stage, ['cancel', name], { onResult, over }, awaited)
    },
  },
  {
    name: 'cli-reap',
    weight: 1,
    draw: ({ dice }) => ({ dryRun: dice.chance(0.2), awaited: dice.chance(0.5) }),
    describe: ({ dryRun }) => `spawn-owned reap${dryRun ? ' --dry-run' : ''}`,
    play(stage, { dryRun, awaited }) {
      if (stage.cannotFork) return false
      const args = dryRun ? ['reap', '--dry-run'] : ['reap']
      return request(stage, args, beginReap(stage, WHO, { dryRun }), awaited)
    },
  },
  {
    name: 'cli-ps',
    weight: 1,
    draw: ({ dice }) => ({ awaited: dice.chance(0.5) }),
    describe: () => 'spawn-owned ps',
    play(stage, { awaited }) {
      if (stage.cannotFork) return false
      const isRecorded = (it) => it.mustBeRecorded && !it.registryLost && it.isAlive()
      const before = [...stage.runs.values()].filter(isRecorded)
      const onResult = ({ runs }) => {
        const shown = new Set(runs.map(({ runId }) => runId))
        for (const it of before.filter(isRecorded))
          if (!shown.has(it.name)) it.wasMissing('alive, but spawn-owned ps did not show it')
      }
      return request(stage, ['ps'], { onResult }, awaited)
    },
  },
]
