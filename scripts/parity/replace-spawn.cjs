// Preload of the patched run: replaces `child_process.spawn` by spawnOwned, and with PARITY_ALL
// also fork, exec and execFile, for `require` and `import`. Logs which functions of the module a
// test calls. NODE_OPTIONS passes it to nested Node processes. It captures everything it needs now,
// because some tests modify globals.
'use strict'

const childProcess = require('node:child_process')
const { appendFileSync } = require('node:fs')
const { syncBuiltinESMExports } = require('node:module')
const { promisify } = require('node:util')

const { PARITY_LOG: log, PARITY_CONTROL: control, PARITY_ALL: all } = process.env

/** `fn` with its own name and length, which logs every call, also of its promisified form. */
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
