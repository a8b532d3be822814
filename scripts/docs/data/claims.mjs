// What docs/*.md say in prose, section by section, with the tests that show it. `section` is an
// anchor of the page.
// After an edit: npm run docs:tests. A test is [file, name, remark]; see cell.mjs.
import { guarantees } from './claims/guarantees.mjs'
import { registry } from './claims/registry.mjs'
import { security } from './claims/security.mjs'

export const claims = [...guarantees, ...security, ...registry]
