// A worker that counts its visitors. It knows nothing of spawn-owned.
import { createServer } from 'node:http'

let visitors = 0
createServer((_request, response) =>
  response.end(`visitor ${++visitors} of process ${process.pid}\n`),
).listen(Number(process.argv[2]), '127.0.0.1')
