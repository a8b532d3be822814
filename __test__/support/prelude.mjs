// The beginning of a test file: assertions, the test runner, limits, the fixtures and the witness.
//
// It only passes on names and constants. It has no state, importing it starts nothing, and it does
// not load the package. What depends on the topic comes from its own module: bots.mjs, registry.mjs,
// orphans.mjs, and the reasons for skipped tests from system.mjs.
export { default as assert } from 'node:assert/strict'
export { after, before, describe, test } from 'node:test'
export * from './fixtures.mjs'
export * from './witness.mjs'

/** Options of a test. */
export const options = { timeout: 120_000 }

/** Options of a group whose tests run at the same time. */
export const together = { timeout: 600_000, concurrency: 4 }

/** A grace period or a deadline, in milliseconds, that does not elapse in a test. */
export const FOR_EVER = 1e8
