// Takes the streams that it gets, and keeps them until its bot is gone.
const taken = []

process.on('message', (_, stream) => {
  taken.push(stream)
  process.send('taken')
})
process.on('disconnect', () => process.exit())
process.send('ready')
