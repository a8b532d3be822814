// Agents that are replaced by the stand-ins of __test__/peers, with tools that leave their session.
import { assertGone } from './bots.mjs'
import { program } from './fixtures.mjs'
import { openWitness } from './witness.mjs'

/** The environment of a stand-in with two tools: a program in its own session, and a daemon. */
export function standIn(t, more) {
  const [agent, tools] = [openWitness(t), openWitness(t)]
  const commands = ['stays', 'double-fork-daemon'].map((name) => [program(name), tools.path])
  const env = {
    ...process.env,
    STAND_IN_WITNESS: agent.path,
    STAND_IN_TOOLS: JSON.stringify(commands),
    ...more,
  }
  return {
    agent,
    tools,
    env,
    toolsRun: () => Promise.all([agent.ready(1), tools.ready(3)]),
    assertAllGone() {
      for (const witness of [agent, tools]) {
        witness.release()
        assertGone(witness)
      }
    },
  }
}
