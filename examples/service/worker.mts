// A worker that counts requests. It does not use spawn-owned.
import { createServer } from 'node:http'

let requests = 0
createServer((_request, response) =>
  response.end(`request ${++requests} to process ${process.pid}\n`),
).listen(Number(process.argv[2]), '127.0.0.1')
