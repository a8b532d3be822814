// Every lint: rustfmt, clippy, Biome, and the types of the TypeScript sources.
import { bin, run } from './tools.mjs'

run('cargo', ['fmt', '--check'])
run('cargo', ['fmt', '--check', '--manifest-path', 'fuzz/Cargo.toml'])
run('cargo', ['clippy', '--quiet', '--all-targets', '--features', 'failpoints', '--', '-D', 'warnings'])
run('cargo', ['clippy', '--quiet', '--all-targets', '--', '-D', 'warnings'])
const models = ['--manifest-path', 'models/Cargo.toml']
run('cargo', ['fmt', '--check', ...models])
const place = ['--target-dir', 'target/models']
run('cargo', ['clippy', '--quiet', '--release', ...models, ...place, '--', '-D', 'warnings'])
run(process.execPath, [bin('biome'), 'check', '--error-on-warnings', '.'], { quiet: true })
run(process.execPath, [bin('tsc'), '-p', 'ts'])
