// What becomes of an agent's processes when the bot cancels it, and when the bot is killed: with child_process, and with
// spawn-owned. Real processes; whether one lives is read from the kernel, never asked of spawn-owned.
// Exits with 0 if everything was as announced.
import { cast } from './lib/cast.mjs'
import { picture } from './lib/picture.mjs'
import { clearAllStages, Stage } from './lib/stage.mjs'
import { table } from './lib/table.mjs'
import { bold, dim, green, heading, hush, paragraph, pause, red, say } from './lib/terminal.mjs'
import { scenes } from './scenes/index.mjs'

if (process.platform !== 'linux') {
  console.error('The demo needs Linux: spawn-owned works there first, other systems follow.')
  process.exit(1)
}

try {
  process.exitCode = await Promise.race([perform(), interruption()])
} catch (error) {
  console.error(`The demo failed: ${error.message}`)
  process.exitCode = 1
}
hush()
await clearAllStages()
process.exit()

/** Resolves with the exit code, if a signal comes. A second one is not waited for: the witness clears up even then. */
function interruption() {
  return new Promise((resolve) => {
    for (const [signal, number] of Object.entries({ SIGHUP: 1, SIGINT: 2, SIGTERM: 15 })) {
      process.once(signal, () => {
        say(`\n  ${signal}: ending what the demo has started.`)
        resolve(128 + number)
      })
    }
  })
}

/** The whole show. Resolves with the exit code. */
async function perform() {
  say()
  paragraph(
    `A bot runs an agent, and the agent starts ${cast.length - 1} more processes, each in a way that real agents use. ` +
      'What is left of them when the bot cancels the agent? And when the bot itself is killed?',
    bold,
  )
  const results = []
  for (const [index, scene] of scenes.entries()) results.push(await playScene(scene, index + 1))

  heading('Compared')
  say()
  for (const line of table(results)) say(line)
  say()
  paragraph(
    `child_process left ${leftBy('plain', results)} running, spawn-owned ${leftBy('owned', results)}.`,
    bold,
  )
  paragraph(
    'Judged by the kernel alone: a socket that every process of the tree holds open, whose end of file means that all ' +
      'of them are gone, and pid with start time in /proc. What was left the demo has ended itself.',
    dim,
  )
  const surprises = results.filter(({ asAnnounced }) => !asAnnounced)
  for (const { scene } of surprises) say(red(`  Not as announced: ${scene.title}`))
  return surprises.length === 0 ? 0 : 1
}

async function playScene(scene, number) {
  heading(`${number} · ${scene.title}`)
  paragraph(scene.story)
  say()
  const stage = await Stage.open(scene.bot)
  say(`  ${bold('before')}`)
  for (const line of picture(stage)) say(line)
  say()
  await pause(1500)

  const since = performance.now()
  const told = await scene.play(stage)
  const result = await judge(scene, stage, since)
  if (told === false) result.asAnnounced = false

  say()
  const verdict =
    result.alive.length > 0
      ? `${result.alive.length} of ${stage.size} still run`
      : 'nothing of the tree is left'
  say(`  ${bold('after')}: ${result.alive.length > 0 ? red(verdict) : green(verdict)}`)
  for (const line of picture(stage, { survivors: true })) say(line)
  await pause(1500)
  await stage.clear()
  return result
}

function leftBy(bot, results) {
  const left = results
    .filter(({ scene }) => (scene.bot === 'plain') === (bot === 'plain'))
    .reduce((sum, { alive }) => sum + alive.length, 0)
  return left === 0 ? 'none' : `${left} processes`
}

async function judge(scene, stage, since) {
  const helpersGone = await stage.helpersGone()
  const alive = stage.alive().map(({ name }) => name)
  const extinct = stage.goneAt !== undefined
  return {
    scene,
    alive,
    goneAfterMs: extinct ? stage.goneAt - since : undefined,
    asAnnounced:
      String(alive.toSorted()) === String(scene.survivors.toSorted()) &&
      extinct === (scene.survivors.length === 0) &&
      helpersGone,
  }
}
