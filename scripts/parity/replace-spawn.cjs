// Preload of the patched run: puts spawnOwned in the place of `child_process.spawn`, with PARITY_ALL our fork, exec and execFile in the
// place of Node's too, for `require` and `import`, and writes down which functions of the module a test calls. It travels to nested Node
// processes in NODE_OPTIONS. Everything it needs is captured now, because some tests tamper with what they can reach.
'use strict'

const childProcess = require('node:child_process')
const { appendFileSync } = require('node:fs')
const { syncBuiltinESMExports } = require('node:module')
const { promisify } = require('node:util')

const { PARITY_LOG: log, PARITY_CONTROL: control, PARITY_ALL: all } = process.env

/** `fn` under its own name and length, with a line in the log for every call, its promisified form included. */
function counted(name, fn) {
  const wrapper = function (...args) {
    if (log) appendFileSync(log, `${name}\n`)
    return Reflect.apply(fn, this, args)
  }
  const properties = Object.getOwnPropertyDescriptors(fn)
  const promised = properties[promisify.custom]
  if (promised) promised.value = counted(name, promised.value)
  return Object.defineProperties(wrapper, properties)
}

const ours = control ? childProcess : require('spawn-owned/child_process')
for (const name of ['spawn', 'fork', 'exec', 'execFile']) {
  const isReplaced = name === 'spawn' || all
  childProcess[name] = counted(name, isReplaced ? ours[name] : childProcess[name])
}
syncBuiltinESMExports()
