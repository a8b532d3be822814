// What docs/guarantees.md says in prose, see ../claims.mjs.

export const guarantees = [
  {
    page: 'guarantees.md',
    section: 'guarantees',
    says: 'Real programs, besides trees of our own',
    tests: [
      ['browsers', 'a browser and all its helpers are ended by'],
      ['browser-mcp', '', 'an MCP server that starts a browser'],
      ['systemd', '', 'bots as services of a real systemd'],
      ['containers', '', 'bots as PID 1'],
    ],
  },
  {
    page: 'guarantees.md',
    section: 'daemons-that-overwrite-their-title',
    says: 'With its keeper, such a daemon ends with the run',
    tests: [['hostile-trees', 'cancel ends', '_cleared-environment_']],
  },
  {
    page: 'guarantees.md',
    section: 'daemons-that-overwrite-their-title',
    says: 'Without bot, keeper and zygote, `reapOrphans` leaves it alone',
    tests: [['keeper-killed', 'but a process that cleared its environment and left the group lives on']],
  },
  {
    page: 'guarantees.md',
    section: 'daemons-that-overwrite-their-title',
    says: 'In a cgroup, `reapOrphans` ends it',
    tests: [['cgroup', 'a daemon that cleared its environment and left its session, when no other member is left']],
  },
  {
    page: 'guarantees.md',
    section: 'macos',
    says: '`usage()` counts every living process, and their CPU time',
    tests: [
      ['usage', 'counts every process of the tree:'],
      ['usage', 'grows with the work of the tree, and never shrinks'],
    ],
  },
  {
    page: 'guarantees.md',
    section: 'macos',
    says: 'The keeper follows its tree although PIDs are reused',
    tests: [['src/contain/kqueue_members/tests.rs', 'rare_scans_claim_no_other_process_and_forget_no_member']],
  },
  {
    page: 'guarantees.md',
    section: 'windows',
    says: '`limits` are given to the kernel',
    tests: [['src/contain/job.rs', 'limits_reach_the_kernel_and_stay_when_end_with_us_is_off']],
  },
  {
    page: 'guarantees.md',
    section: 'windows',
    says: 'The kernel enforces `limits` (on Windows only, not under Wine)',
    tests: [
      ['windows-trees', 'no more processes than its limit'],
      ['windows-trees', 'no more memory than its limit'],
    ],
  },
  {
    page: 'guarantees.md',
    section: 'windows',
    says: 'A command inherits its own streams and no other handle',
    tests: [['windows-trees', 'a command inherits its own streams, and no other inheritable handle']],
  },
]
