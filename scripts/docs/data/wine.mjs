// The tests that are left out or weaker under Wine, and why. `reason` is a constant of
// __test__/support/system.mjs, or the text in the test.
// After an edit: npm run docs:tests. A test is [file, name, remark]; see cell.mjs.

export const leftOut = [
  {
    reason: 'WINE_CANNOT_ASK',
    tests: [
      ['bot-killed', 'SIGKILL during a cancel with a long grace'],
      ['cancel-from-other-process', 'sends SIGTERM and leaves time to clean up'],
      ['cancel-from-other-process', 'returns the same reason to every bot that cancels'],
      ['cancel-from-other-process', 'sends SIGTERM once although 30 callers cancel'],
      ['cancel', "the run's own grace period is the default"],
      ['deadlines', 'a deadline and cancels that come later share one result'],
      ['hostile-trees', 'gives processes time to clean up, and ends as soon as they have'],
      ['hostile-trees', 'is waited for in full if a process ignores SIGTERM'],
      ['hostile-trees', 'does not protect children that a SIGTERM handler starts'],
      ['no-output', 'the whole tree, after the grace period by SIGKILL'],
      ['registry', 'shows that the run is being ended'],
      ['run', 'a cancel that the command answers'],
      ['run', 'for a run whose tree takes time to end'],
      ['run', 'ends the whole tree, after the grace period by SIGKILL'],
      ['run-changes', 'does not replace the cause of another bot'],
      ['shutdown', 'a run that waits for its scope, before its start'],
      ['shutdown', '5 s by default, whatever grace period the runs have, and then sends SIGKILL'],
      ['shutdown', 'no longer than the last run needs'],
      ['shutdown', 'less time if a second call has a shorter grace period, and both calls return the same result'],
      ['shutdown', 'into account a second call without leaveKept, and ends the kept runs too'],
      ['shutdown', 'the supervisor accepts no new run; afterwards it does'],
      ['signal-handlers', 'exits with code 149 when its runs are gone:'],
      ['signal-handlers', "ends unref'ed runs with SIGTERM first, and keeps its exit code"],
    ],
  },
  {
    reason: 'WINE_TAKES_ANY_LENGTH',
    tests: [
      ['errors', 'spawnOwned reports, like child_process, the excessive length of'],
      ['registry', 'arguments that are too long'],
    ],
  },
  {
    reason: 'WINE_LETS_SLIP',
    tests: [['bot-killed', 'a bot SIGKILLed at random instants leaves no process of', 'the two hydras']],
  },
  {
    reason: 'WINE_SERVER_CRASHES',
    tests: [['hostile-trees', 'with', 'cancel during the start ends: all trees']],
  },
  {
    reason: 'WINE_ECHOES_LINES',
    tests: [['pty-lifecycle', 'noOutputTimeoutMs counts from the last output, which can be an echo']],
  },
  {
    reason: 'WINE_CONNECTS_NO_STREAMS',
    tests: [
      ['node-pty', 'works without arguments, as in node-pty'],
      ['node-pty', 'sends no data to a disposed listener'],
      ['hostile-trees', 'with', 'with a terminal: npx-like wrapper'],
      ['scenarios', 'shell-wrapper-tree: the tree ends after the wrapper exits:', 'with a terminal: npx-like wrapper'],
      ['scenarios', 'shell-wrapper-tree: a cancel ends the whole tree:', 'with a terminal: npx-like wrapper'],
      ['pty', 'resizes the terminal, and the process in the foreground gets SIGWINCH'],
      ['pty-lifecycle', 'of the bot ends', 'npx-like wrapper: a node.exe, which exits at once without streams, and its tree with it'],
    ],
  },
  {
    reason: 'WINE_KEEPS_NO_LIMITS',
    tests: [
      ['windows-trees', 'no more processes than its limit'],
      ['windows-trees', 'no more memory than its limit'],
    ],
  },
  {
    reason: 'WINE_COUNTS_NO_TIME',
    tests: [
      ['usage', 'includes the time of an ended grandchild:'],
      ['usage', 'grows with the work of the tree, and never shrinks'],
    ],
  },
  {
    reason: 'under Wine child_process itself does not get the end of such a channel',
    tests: [['ipc', 'completely if they are sent in a burst before the exit']],
  },
]

/** Tests that run under Wine and check less there. `how` says what. */
export const weaker = [
  {
    tests: [['hostile-trees', 'cancel ends', 'the two hydras']],
    how:
      'The run may report one survivor. Wine creates a process in several steps. If the parent ends between ' +
      'two of them, the child has no thread, so `TerminateJobObject` skips it (`terminate_job` in ' +
      '`server/process.c`: `if (process->running_threads)`). The child stays until the Wine server ends: the ' +
      'job counts it, and its inherited handles stay open. A C program that uses only the job functions sees ' +
      'the same in 2 of 240 such trees, under other load: `ActiveProcesses` stays 1, and the file stays ' +
      'locked. Windows creates a process in one step.',
  },
  {
    tests: [
      ['beside-child-process', 'refused starts'],
      ['beside-child-process', 'many owned runs and plain children at once all exit as expected'],
      ['beside-child-process', 'leave descriptors, threads and children as before'],
    ],
    how:
      'The first test does not try the command line that is too long. The other two use a tenth of the runs: ' +
      "with many, Node's own `spawn` sometimes fails under Wine, and everything takes ten times as long.",
  },
  {
    tests: [['__test__/support/orphans.mjs', '', 'every test of what a bot has left']],
    how: 'Trees have 2 processes, not 33. For so many tests, 33 take too long to start.',
  },
  {
    tests: [['scenarios', 'overall-timeout']],
    how:
      'The test does not measure the grace period, because Wine has no CTRL_BREAK. With a terminal, it does ' +
      'not check how the command ended: in Wine a closed console is only the end of its input.',
  },
  {
    tests: [['pty-lifecycle', 'twenty commands that exit by themselves leave no console host']],
    how: 'In Wine the test passes even if no console is closed. Only Windows can show that we close them.',
  },
  {
    tests: [['windows-trees', 'no process breaks away from the job']],
    how: 'Wine does not know the flag. A process that requests it starts in the job, and ends with it.',
  },
  {
    tests: [['src/registry/disk/tests.rs', 'open_refuses_a_symbolic_link_and_leaves_its_target_unchanged']],
    how: 'This Wine reports that it has made a link, and has made none.',
  },
]
