// Preload of the patched run: puts spawnOwned in the place of `child_process.spawn`, for `require` and
// `import`, and writes down which functions of the module a test calls. It travels to nested Node processes
// in NODE_OPTIONS. Everything it needs is captured now, because some tests tamper with what they can reach.
'use strict'

const childProcess = require('node:child_process')
const { appendFileSync, readFileSync } = require('node:fs')
const { syncBuiltinESMExports } = require('node:module')
const path = require('node:path')

const { PARITY_LOG: log, PARITY_CONTROL: control, PARITY_REBUILD: nodeSource } = process.env

/** `fn` under its own name, length and `util.promisify.custom`, with a line in the log for every call. */
function counted(name, fn) {
  const wrapper = function (...args) {
    if (log) appendFileSync(log, `${name}\n`)
    return Reflect.apply(fn, this, args)
  }
  return Object.defineProperties(wrapper, Object.getOwnPropertyDescriptors(fn))
}

/**
 * Node's own fork, exec and execFile call the `spawn` of their module, not the exported one. `--all` evaluates
 * that module a second time, from the source tree, with its `spawn` bound to ours. It needs
 * --expose-internals, which NODE_OPTIONS may not carry: nested processes without the flag get only `spawn`.
 */
function rebuild(spawn) {
  if (!nodeSource || !process.execArgv.includes('--expose-internals')) return {}
  const { emitWarning } = process
  process.emitWarning = () => {} // "These APIs are for internal testing only": true, and it would fail tests
  const { internalBinding, primordials } = require('internal/test/binding')
  process.emitWarning = emitWarning
  for (const name of ['internalBinding', 'primordials']) delete globalThis[name] // tests look for leaked globals
  const source = readFileSync(path.join(nodeSource, 'lib/child_process.js'), 'utf8')
  const rebound = source.replace('module.exports = {', 'spawn = boundSpawn;\nmodule.exports = {')
  if (rebound === source)
    throw new Error('parity: lib/child_process.js has no module.exports = { to bind spawn before')
  const names = ['module', 'exports', 'require', 'process', 'internalBinding', 'primordials', 'boundSpawn']
  const module = { exports: {} }
  new Function(...names, rebound)(
    module,
    module.exports,
    require,
    process,
    internalBinding,
    primordials,
    spawn,
  )
  // `exec` goes through `module.exports.execFile`, which is where tests would patch it.
  return { fork: module.exports.fork, exec: module.exports.exec, execFile: module.exports.execFile }
}

const replacement = control ? childProcess.spawn : require('spawn-owned/child_process').spawn
const spawn = counted('spawn', replacement)
const rebuilt = rebuild(spawn)
for (const name of ['fork', 'exec', 'execFile']) {
  childProcess[name] = counted(name, rebuilt[name] ?? childProcess[name])
}
childProcess.spawn = spawn
syncBuiltinESMExports()
