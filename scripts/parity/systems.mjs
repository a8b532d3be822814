// Where Node's suite runs: on this system, or in node.exe under Wine.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { WINDOWS_PROGRAMS } from '../../__test__/support/system.mjs'
import { buildWindowsPrograms } from '../../__test__/support/windows-programs.mjs'
import { nodeExe, usual } from '../windows/node.mjs'
import { native, windowsPath } from '../windows/places.mjs'
import { launcher, startWine, stopWine, wineEnvironment } from '../windows/wine.mjs'

/**
 * path         the path of a file, as seen by the node that runs the tests
 * command      the command line that runs a node, without arguments
 * environment  the base of a test's environment
 * node         the default node
 */
export const thisSystem = {
  build: 'npm run build',
  environment: process.env,
  node: () => process.execPath,
  path: (path) => path,
  command: (node) => [node],
  start() {},
}

/**
 * The launcher holds each test in a job, so that no process is left, and names leftovers on stderr.
 * Node's tests expect some Unix commands in the PATH on Windows, so these are provided.
 */
export const wine = {
  build: 'npm run test:windows',
  environment: { ...wineEnvironment, WINEPATH: windowsPath(join(WINDOWS_PROGRAMS, 'commands')) },
  node: () => nodeExe(usual),
  path: windowsPath,
  command: (node) => [...launcher, windowsPath(node)],
  start() {
    if (!existsSync(native)) throw new Error('There is no addon for Windows; run npm run test:windows first.')
    buildWindowsPrograms()
    process.on('exit', stopWine)
    for (const [signal, code] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
    ])
      process.on(signal, () => process.exit(code))
    startWine()
  },
}
