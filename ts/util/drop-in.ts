// The mark of a run that a drop-in for child_process starts.

/**
 * The key of the mark in the options of spawnOwned. Registered, because each entry point of the
 * package is a bundle of its own.
 */
export const DROP_IN = Symbol.for('spawn-owned.drop-in')
