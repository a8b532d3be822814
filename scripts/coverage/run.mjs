// `npm run coverage`: how much of each folder its tests execute. `-- rust`: only src/. `-- ts`:
// only ts/; names of test files may follow, otherwise all run.
import { rustCoverage } from './rust.mjs'
import { print } from './table.mjs'
import { typescriptCoverage } from './typescript.mjs'

const [what, ...files] = process.argv.slice(2)

if (what !== 'ts') print('src/, by the Rust tests', rustCoverage())
if (what !== 'rust') print('ts/, by the tests in __test__/', await typescriptCoverage(files))
