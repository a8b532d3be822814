// For systems with nothing but Node: checks that the installed package owns a tree and ends it.
const { deepEqual, notEqual } = require('node:assert')
const { spawnOwned } = require('spawn-owned')

const tree = spawnOwned('sh', ['-c', "sh -c 'echo $$; exec sleep 1000' & wait"])
tree.stdout.once('data', async (line) => {
  notEqual(Number(line), tree.pid)
  const { reason, survivors } = await tree.cancel()
  deepEqual({ reason, survivors }, { reason: 'manual-cancel', survivors: [] })
  // The kernel confirms it, not the product.
  for (const pid of [tree.pid, Number(line)])
    deepEqual(errorOf(() => process.kill(pid, 0))?.code, 'ESRCH', `${pid} exists`)
  console.log(`owned and ended on ${process.platform} ${process.arch}`)
})

function errorOf(action) {
  try {
    action()
  } catch (error) {
    return error
  }
}
