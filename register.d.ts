/**
 * `node --import spawn-owned/register bot.js`: every `spawn`, `fork`, `exec` and `execFile` of an unchanged bot is owned, and those of the
 * libraries that it uses. Exports nothing.
 *
 * @packageDocumentation
 */
export {}
