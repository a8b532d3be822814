/** Wants a CPU all the time, until nobody is there who wants that. */

process.on('disconnect', () => process.exit())

function burn() {
  const until = performance.now() + 50
  while (performance.now() < until);
  setImmediate(burn)
}

burn()
