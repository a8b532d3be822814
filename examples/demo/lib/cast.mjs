/** The processes of the agent's tree, in the order of the picture, and how each one escapes. */
export const cast = [
  { name: 'agent', note: 'the command that the bot started' },
  { name: 'log-watcher', note: 'ignores SIGTERM' },
  { name: 'mcp-server', note: 'its npx wrapper exited first' },
  { name: 'tool-shell', note: 'setsid: own session and group', leftGroup: true },
  { name: 'dev-server', note: 'started by the tool shell', leftGroup: true },
  { name: 'browser', note: 'setsid: own session and group', leftGroup: true },
  { name: 'browser gpu', note: 'started by the browser', leftGroup: true },
  { name: 'browser tab 1', note: '', leftGroup: true },
  { name: 'browser tab 2', note: '', leftGroup: true },
  { name: 'tunnel-daemon', note: 'setsid, and double fork', leftGroup: true },
  { name: 'ghost', note: 'setsid, double fork, cleared env', leftGroup: true },
]

/** Additional processes of some bots, outside the agent's tree. */
export const others = { keeping: [{ name: 'model-server', note: 'registered by the bot, no keeper' }] }

export const names = cast.map(({ name }) => name)
export const namesThatLeftTheGroup = cast.filter(({ leftGroup }) => leftGroup).map(({ name }) => name)

export function rank(name) {
  return names.indexOf(name)
}

export function noteFor(name) {
  return [...cast, ...Object.values(others).flat()].find((one) => one.name === name)?.note ?? ''
}
