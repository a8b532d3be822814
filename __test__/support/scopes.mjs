// Runs of one scope: earlier ones, and those that wait for them.
import { assertGone, freshRegistry, supervise } from './bots.mjs'
import { treeNamed } from './hostile-trees.mjs'
import { assert, openWitness, program } from './prelude.mjs'

/** The scope of all these runs, and the options of a run that replaces them. */
export const scope = { scopeKey: 'the-scope' }
export const replacing = { ...scope, replaceExistingScope: true }

/**
 * Starts an earlier run of the scope, and waits until it is ready. It ends slowly, so a run that
 * replaces it has to wait.
 */
export async function earlier(t, { here, tree = treeNamed('ignores-sigterm'), ...more } = {}) {
  here ??= supervise(freshRegistry())
  const witness = openWitness(t)
  const [command, args] = tree.command(witness.path)
  const child = here.spawnOwned(command, args, { ...scope, graceMs: 700, stdio: 'ignore', ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  await witness.ready(tree.ready)
  return { child, here, witness }
}

/** Starts a run that waits for the earlier run. Its own witness shows whether it ever starts. */
export function waiting(t, { here }, more) {
  const witness = openWitness(t)
  const child = here.spawnOwned(program('stays'), [witness.path], { ...replacing, stdio: 'ignore', ...more })
  t.after(() => child.cancel({ signal: 'SIGKILL' }))
  assert.deepEqual([child.state, child.pid], ['starting', undefined])
  const events = []
  for (const name of ['spawn', 'error', 'exit', 'close'])
    child.on(name, (...args) => events.push([name, ...args]))
  return { child, events, witness }
}

/** Resolves with all that the stream delivers. */
export const textOf = (stream) =>
  stream
    .setEncoding('utf8')
    .toArray()
    .then((texts) => texts.join(''))

/** Asserts that a run that waited has never had a process. */
export function assertNeverStarted({ child, witness, events }) {
  witness.release()
  assertGone(witness)
  assert.equal(child.pid, undefined)
  assert.deepEqual(
    events.filter(([name]) => name === 'spawn'),
    [],
  )
}
