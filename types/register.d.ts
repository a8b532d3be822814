/**
 * Makes all child processes of an unchanged bot owned: `node --import spawn-owned/register bot.js`.
 *
 * It replaces `spawn`, `fork`, `exec` and `execFile` for the bot and its libraries. This module has
 * no exports. As in `spawn-owned/child_process`, the default of `onLeaderExit` is `'keep'`.
 *
 * @packageDocumentation
 */
export {}
