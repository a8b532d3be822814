// The test files. They lie in folders below __test__ that match the code; the file names differ, so a name alone finds its file.
import { readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { root } from './tools.mjs'

const folders = readdirSync(join(root, '__test__'), { withFileTypes: true }).filter((entry) =>
  entry.isDirectory(),
)

/** The path of each test file from the root of the repository, by its file name. */
export const testFiles = new Map(
  folders
    .flatMap(({ name }) =>
      readdirSync(join(root, '__test__', name)).map((file) => join('__test__', name, file)),
    )
    .filter((path) => path.endsWith('.test.mjs'))
    .map((path) => [basename(path), path]),
)

/**
 * The files of `npm run test:quick`, by name: something of every topic, in less than a minute.
 * None needs the packages of __test__/peers.
 */
export const quickFiles = [
  ...['run', 'cancel', 'stdio', 'streams', 'errors', 'failed-start', 'how-it-ended'],
  ...['option-keys', 'option-declarations'],
  ...['escapes', 'registry', 'registry-files', 'registry-old-files', 'reap', 'reap-report', 'reap-policy'],
  ...['survey'],
  ...['events', 'metrics', 'cli-words', 'security-texts', 'shutdown', 'package', 'release', 'targets'],
  ...['design', 'docs', 'test-report'],
]
