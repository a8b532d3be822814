// The crate's unit tests, built for Windows and run in Wine.
import { run, say } from '../tools.mjs'
import { cargo, cargoEnvironment, target } from './toolchain.mjs'
import { launcher, wineEnvironment } from './wine.mjs'

export function runRustTests() {
  say("Running the crate's unit tests")
  const env = {
    ...cargoEnvironment(),
    ...wineEnvironment,
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER: launcher.join(' '),
  }
  // The release profile, because the standard library is already built for it.
  run(cargo, ['test', '--lib', '--release', '--quiet', ...target], { env, quiet: true })
  console.log('windows: unit tests passed')
}
