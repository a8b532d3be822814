// The lists of option keys agree with the declarations.
import { readFileSync } from 'node:fs'
import { assert } from '../support/prelude.mjs'
import { sources, test as sourceTest } from '../support/sources.mjs'

sourceTest('every list of keys has exactly the keys of its declaration', async () => {
  const lists = await sources('util/option-keys')
  /** Name of an interface or an alias, and its declaration without comments. */
  const declarations = new Map()
  for (const name of ['index', 'types/acp', 'types/claude-agent-sdk', 'types/mcp', 'types/node-pty']) {
    const text = readFileSync(new URL(`../../${name}.d.ts`, import.meta.url), 'utf8')
    const code = text.replace(/\/\*[\s\S]*?\*\//g, '')
    for (const [, it, declaration] of code.matchAll(
      /^export (?:interface|type) (\w+)([\s\S]*?)(?=^export )/gm,
    ))
      declarations.set(it, declaration)
  }
  // The SDK defines these options.
  declarations.delete('SpawnOptions')
  /**
   * Returns the keys of an interface and of the interfaces that it extends. Node declares the
   * others.
   */
  const keysOf = (name) => {
    const declaration = declarations.get(name)
    if (declaration === undefined) return []
    const at = declaration.indexOf('{')
    const [head, body] = at < 0 ? [declaration, ''] : [declaration.slice(0, at), declaration.slice(at)]
    const picked = [...head.matchAll(/Pick<\s*\w+,\s*([^>]+)>/g)].flatMap(([, names]) => names.match(/\w+/g))
    const omitted = [...head.matchAll(/Omit<\s*(\w+),\s*([^>]+)>/g)].flatMap(([, of, names]) =>
      keysOf(of).filter((key) => !names.match(/\w+/g).includes(key)),
    )
    const parents = head.replace(/(Pick|Omit)<[^>]+>/g, '').match(/\w+/g) ?? []
    const members = [...body.matchAll(/^ {2}(\w+)\??:/gm)].map(([, member]) => member)
    return [...picked, ...omitted, ...parents.flatMap(keysOf), ...members]
  }
  const declared = {
    CANCEL: 'CancelOptions',
    FILTER: 'RunFilter',
    SURVEY: 'SurveyOptions',
    HISTORY: 'HistoryFilter',
    REGISTER: 'RegisterEntry',
    REAP: 'ReapOptions',
    FIND_ORPHANS: 'FindOrphansOptions',
    END_ORPHANS: 'EndOrphansOptions',
    WATCH: 'WatchOptions',
    SHUTDOWN: 'ShutdownOptions',
    SIGNAL_HANDLERS: 'SignalHandlerOptions',
    SUPERVISOR: 'SupervisorOptions',
    SET_DEADLINE: 'DeadlineChange',
    UPDATE: 'RunChanges',
    LINES: 'LinesOptions',
    PTY: 'PtyOptions',
    LIMITS: 'RunLimits',
    SERVICE: 'ServiceOptions',
    AGENT_SPAWNER: 'SpawnerOptions',
    SPAWN_OWNED: 'SpawnOwnedOptions',
    MCP_SERVER: 'StdioServerParameters',
    ACP_AGENT: 'AgentParameters',
    NODE_PTY: 'IPtyForkOptions',
  }
  for (const [list, name] of Object.entries(declared)) {
    // Node declares its own options. The compiler compares those.
    const ours = [...lists[list]].filter((key) => list !== 'SUPERVISOR' || !lists.SPAWN_NODE.has(key))
    assert.deepEqual(ours.sort(), [...new Set(keysOf(name))].sort(), `${list} and ${name}`)
  }
  const optionInterfaces = [...declarations.keys()].filter((name) =>
    /Options$|Limits$|Filter$|Entry$/.test(name),
  )
  const checked = new Set([
    ...Object.values(declared),
    'SuspectOptions',
    'OwnershipOptions',
    'RunOptions',
    'IBasePtyForkOptions',
  ])
  assert.deepEqual(
    optionInterfaces.filter((name) => !checked.has(name)),
    [],
    'these interfaces have no list of keys',
  )
})
