// `npm test`: the core with cargo-nextest, then everything a user sees with node's test runner.
// Arguments are passed on to the latter: `npm test -- --test-name-pattern=cancel`.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { root, run } from './tools.mjs'

const files = readdirSync(join(root, '__test__'))
  .filter((file) => file.endsWith('.test.mjs'))
  .map((file) => join('__test__', file))

run('cargo', ['nextest', 'run', '--cargo-quiet', '--status-level', 'fail', '--final-status-level', 'fail'])
run(process.execPath, [
  '--test',
  '--test-reporter=dot',
  '--test-concurrency=2',
  ...process.argv.slice(2),
  ...files,
])
