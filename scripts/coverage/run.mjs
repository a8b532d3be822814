// `npm run coverage`: how much of each room is executed by its tests. `-- rust`: of src/ alone. `-- ts`: of ts/ alone; then names of test
// files may follow, else all are run.
import { rustCoverage } from './rust.mjs'
import { print } from './table.mjs'
import { typescriptCoverage } from './typescript.mjs'

const [what, ...files] = process.argv.slice(2)

if (what !== 'ts') print('src/, by the Rust tests', rustCoverage())
if (what !== 'rust') print('ts/, by the tests in __test__/', typescriptCoverage(files))
