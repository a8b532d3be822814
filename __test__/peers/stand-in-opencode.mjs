#!/usr/bin/env node
// Stands in for `opencode serve`: an HTTP server. A prompt starts the tools, and has no answer while the agent works.
import { createServer } from 'node:http'
import { startTools } from './stand-in.mjs'

const server = createServer((request, response) => {
  if (request.url.endsWith('/message')) return startTools()
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify({ id: 'ses_1', title: 'a session' }))
})
server.listen(0, '127.0.0.1', () => {
  console.log(`opencode server listening on http://127.0.0.1:${server.address().port}`)
})
