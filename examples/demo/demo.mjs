// Shows which processes of an agent are left when the bot cancels it, and when the bot is killed:
// with child_process and with spawn-owned. The processes are real. The demo reads from the kernel
// which of them are alive, not from spawn-owned. It exits with 0 if every scene ended as expected.
import { cast } from './lib/cast.mjs'
import { picture } from './lib/picture.mjs'
import { clearAllStages, Stage } from './lib/stage.mjs'
import { table } from './lib/table.mjs'
import { bold, dim, green, heading, mute, paragraph, pause, red, say } from './lib/terminal.mjs'
import { scenes } from './scenes/index.mjs'

if (process.platform !== 'linux') {
  console.error('The demo needs Linux, because it reads /proc.')
  process.exit(1)
}

try {
  process.exitCode = await Promise.race([playAll(), interruption()])
} catch (error) {
  console.error(`The demo failed: ${error.message}`)
  process.exitCode = 1
}
mute()
await clearAllStages()
process.exit()

/**
 * Resolves with the exit code at the first signal. A second signal kills the demo; the witness
 * cleans up then.
 */
function interruption() {
  return new Promise((resolve) => {
    for (const [signal, number] of Object.entries({ SIGHUP: 1, SIGINT: 2, SIGTERM: 15 })) {
      process.once(signal, () => {
        say(`\n  ${signal}: terminating all processes of the demo.`)
        resolve(128 + number)
      })
    }
  })
}

/** Plays all scenes. Resolves with the exit code. */
async function playAll() {
  say()
  paragraph(
    `A bot runs an agent, and the agent starts ${cast.length - 1} more processes, each in a way that real agents use. ` +
      'Which of them are left when the bot cancels the agent? And when the bot itself is killed?',
    bold,
  )
  const results = []
  for (const [index, scene] of scenes.entries()) results.push(await playScene(scene, index + 1))

  heading('Comparison')
  say()
  for (const line of table(results)) say(line)
  say()
  paragraph(
    `child_process left ${leftBy('plain', results)} running, spawn-owned ${leftBy('owned', results)}.`,
    bold,
  )
  paragraph(
    'These results come from the kernel: PID and start time in /proc, and a socket that every process of the tree ' +
      'holds open. End of file on the socket means that all of them are gone. The demo has killed what was left.',
    dim,
  )
  const unexpected = results.filter(({ asExpected }) => !asExpected)
  for (const { scene } of unexpected) say(red(`  Unexpected result: ${scene.title}`))
  return unexpected.length === 0 ? 0 : 1
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
  const passed = await scene.play(stage)
  const result = await judge(scene, stage, since)
  if (passed === false) result.asExpected = false

  say()
  const verdict =
    result.alive.length > 0
      ? `${result.alive.length} of ${stage.size} still run`
      : 'no process of the tree is left'
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
    asExpected:
      String(alive.toSorted()) === String(scene.survivors.toSorted()) &&
      extinct === (scene.survivors.length === 0) &&
      helpersGone,
  }
}
