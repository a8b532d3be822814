// What docs/*.md say in prose, section by section, with the tests that show it. `section` is an
// anchor of the page.
// After an edit: npm run docs:tests. A test is [file, name, remark]; see cell.mjs.

export const claims = [
  {
    page: 'guarantees.md',
    section: 'guarantees',
    says: 'The tests also use real programs',
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
    says: '`usage()` counts the live members and their CPU time',
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

  {
    page: 'security.md',
    section: 'another-user',
    says: 'A keeper refuses connections of another user',
    tests: [
      ['security-users', 'gets no answer from a keeper and cannot cancel a run'],
      ['security-users', 'gets no answer from a keeper that cannot distinguish user ids', 'the overflow id'],
    ],
  },
  {
    page: 'security.md',
    section: 'another-user',
    says: 'A process that has taken the address of a keeper gets no request',
    tests: [['cancel-despite-faults', 'cancel sends nothing to an impostor at the address of the keeper']],
  },
  {
    page: 'security.md',
    section: 'another-user',
    says: 'A process of another user is no member, although it carries the cookie',
    tests: [['security-users', 'cannot make its process a member of a run with the cookie of the run']],
  },
  {
    page: 'security.md',
    section: 'another-user',
    says: 'Files of another user are refused',
    tests: [
      ['registry-errors', 'a file of another user'],
      ['security-users', 'cannot replace the registry or its journal, even if the folder is writable'],
    ],
  },
  {
    page: 'security.md',
    section: 'another-user',
    says: '`spawn-owned doctor` reports a folder that others can write',
    tests: [['security-files', 'warns if other users can write in the folder, and only then']],
  },
  {
    page: 'security.md',
    section: 'another-user',
    says: 'A refused signal is reported',
    tests: [['reap-strangers', 'without permission, reapOrphans']],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'A command gets no file descriptor of bot, zygote or keeper',
    tests: [
      ['security-commands', 'a command has no file descriptor of bot, zygote or keeper:'],
      ['stdio', 'a command gets none of the descriptors of its bot'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'It kills its keeper, or keeper and zygote',
    tests: [
      ['keeper-killed', 'after its keeper is killed, a run is lost and no process is left of'],
      ['keeper-killed', 'after keeper and zygote were killed together, a run is lost and its traceable members end:'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'It stops its keeper',
    tests: [
      ['deadlines', 'a run ends at its deadline although its command has stopped the keeper and the zygote'],
      ['cancel-despite-faults', 'the keeper is stopped again and again'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'It traces its keeper',
    tests: [
      ['security-commands', 'a command that traces its keeper and keeps it stopped'],
      ['security-commands', 'a command whose detached descendant traces the keeper'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'It pretends to be its keeper',
    tests: [
      ['security-commands', 'cannot trace the keeper without privileges'],
      ['security-commands', 'is ended, and the message is not accepted'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'It copies the cookie of another run',
    tests: [
      ['security-users', 'can make reapOrphans end its process with the cookie of a run without a keeper'],
      ['security-users', 'cannot make a keeper end its process with the cookie, because the keeper knows its tree'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'It chooses a confusing process name',
    tests: [['src/identity/stat.rs', 'a_command_name_cannot_forge_the_fields_after_it']],
  },
  {
    page: 'security.md',
    section: 'a-hostile-command',
    says: 'With another `uid` it can do none of this',
    tests: [['security-users', 'a command that runs as another user cannot signal its keeper, zygote or bot']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: 'A single field is changed to name another process',
    tests: [['security-fields', 'if a field of an entry names a bystander, reapOrphans does not signal it:']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: '`pid` and start token do not agree',
    tests: [['tampered-registry', 'a journal line whose PID differs from its start token is ignored:']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: 'Another boot, another PID namespace',
    tests: [['src/reap/classify/tests.rs', '']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: '`pgid`',
    tests: [['reap-strangers', 'is not signalled if no member is proven to belong to the run']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: '`keeper`',
    tests: [
      ['tampered-registry', 'a bystander, which is not even woken'],
      ['tampered-registry', 'the keeper of another run, whether or not its address is right'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: '`members`',
    tests: [['tampered-registry', 'a member that an entry names is not signalled if it is not in the group']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: '`cgroup`',
    tests: [
      ['security-fields', 'an ordinary folder with the name of the run’s cgroup is not used as a cgroup'],
      ['security-fields', 'reapOrphans kills no cgroup of another name, also if its path contains the right name'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: '`runId` of a live run',
    tests: [['reap-strangers', 'a run with the same id in another registry is not touched']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: 'The owner, named as a member',
    tests: [
      ['tampered-registry', 'if it names its own bot'],
      ['src/registry/table/tests.rs', 'the_owner_is_never_a_member_or_the_keeper_of_its_run'],
    ],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: 'PID 1, a PID below 100, the reaper, its ancestors',
    tests: [['reap-strangers', 'reapOrphans skips an entry that names']],
  },
  {
    page: 'security.md',
    section: 'a-tampered-registry',
    says: 'Mutated files end no other process',
    tests: [['src/reap/tests.rs', 'no_mutation_of_a_file_ends_a_bystander', '`MUTATIONS=100000` tries 100,000']],
  },
  {
    page: 'security.md',
    section: 'environment-variables',
    says: 'A setuid program ignores `SPAWN_OWNED_REGISTRY`',
    tests: [['security-files', 'a program with more rights than its caller ignores the registry path of the environment']],
  },
  {
    page: 'security.md',
    section: 'files',
    says: 'Mode 0600, whatever the umask is',
    tests: [['security-files', 'all created files are readable by their owner only, for any umask']],
  },
  {
    page: 'security.md',
    section: 'files',
    says: 'Links, FIFOs, folders and files of other users are refused',
    tests: [
      ['registry-errors', 'a symbolic link'],
      ['registry-errors', 'the registry refuses at once'],
    ],
  },
  {
    page: 'security.md',
    section: 'files',
    says: 'A file with a second name (a hard link) is refused',
    tests: [['security-files', 'a hard link']],
  },
  {
    page: 'security.md',
    section: 'files',
    says: 'A file in the way of a checkpoint does no harm',
    tests: [['security-files', 'a checkpoint']],
  },
  {
    page: 'security.md',
    section: 'texts',
    says: 'Control characters do not reach the terminal',
    tests: [['security-texts', 'the command line prints no control character']],
  },
  {
    page: 'security.md',
    section: 'texts',
    says: 'A command cannot forge a line of the event log',
    tests: [['orphan-events', 'cannot be forged by the text of a command']],
  },
  {
    page: 'security.md',
    section: 'texts',
    says: 'Metrics contain only labels that spawn-owned sets',
    tests: [['security-texts', 'metricsText() contains no label that a caller chooses']],
  },
  {
    page: 'security.md',
    section: 'secrets',
    says: 'No value of an environment is written to disk or sent to the keeper',
    tests: [['security-texts', 'no value of an environment is written to a file or passed to the keeper']],
  },
  {
    page: 'security.md',
    section: 'input-of-every-kind',
    says: 'Every public function, with arbitrary arguments',
    tests: [['fuzz-options', 'random values do no harm to']],
  },
  {
    page: 'security.md',
    section: 'input-of-every-kind',
    says: 'Every command of the CLI, with arbitrary words',
    tests: [['fuzz-cli', 'random words cause no crash and no wrong cancel in the command']],
  },
  {
    page: 'security.md',
    section: 'input-of-every-kind',
    says: 'A panic becomes a JavaScript exception',
    tests: [['panic', 'a panic in the addon throws an Error and does not end the bot']],
  },

  {
    page: 'registry.md',
    section: 'a-crash-at-any-instant',
    says: 'A bot is killed at every write, while it owns runs and while it takes over the run of another bot',
    tests: [
      ['registry-crash', ''],
      ['src/registry/table/tests.rs', '', 'every prefix of hundreds of histories'],
    ],
  },
  {
    page: 'registry.md',
    section: 'several-bots-on-one-file',
    says: 'Of several bots that reap at the same time, one gets each entry',
    tests: [
      ['reap', ''],
      ['adopt', ''],
      ['leases', ''],
    ],
  },
  {
    page: 'registry.md',
    section: 'on-windows',
    says: 'The file layer, also under Wine',
    tests: [['src/registry/disk/tests.rs', '']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'Torn, damaged, truncated, newer, missing, deleted or foreign files, links, FIFOs, folders',
    tests: [
      ['registry-errors', ''],
      ['registry-damaged', ''],
    ],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'One entry is invalid; files of other programs',
    tests: [['registry-old-files', '']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'The disk is full, the folder is read-only',
    tests: [['registry-disk', '']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'The journal is a hard link',
    tests: [['security-files', 'a hard link']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'A bot is stopped while it holds the lock',
    tests: [
      ['registry-shared', ''],
      ['registry-bounds', ''],
    ],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'The system has no boot id',
    tests: [['containers', '']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'The run id is in use',
    tests: [
      ['registry-shared', ''],
      ['register', ''],
    ],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'A registry that cannot be read never counts as empty',
    tests: [['registry-unreadable', '']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'No content makes the reader panic, or ends another process',
    tests: [
      ['src/registry/import/tests.rs', '', 'reading'],
      ['src/reap/tests.rs', '', 'deciding'],
    ],
  },
  {
    page: 'registry.md',
    section: 'leases',
    says: 'A steal is recorded before the first signal, and only one of two bots gets the run',
    tests: [['leases', '']],
  },
  {
    page: 'reaping.md',
    section: 'decisions',
    says: 'The table of decisions, for every combination of facts',
    tests: [['src/reap/classify/tests.rs', '']],
  },
  {
    page: 'reaping.md',
    section: 'the-event-log',
    says: 'The event log',
    tests: [['orphan-events', '']],
  },
  {
    page: 'cancelling.md',
    section: 'cancel-a-run',
    says: 'Cancel from another process',
    tests: [
      ['cancel-from-other-process', ''],
      ['cancel-despite-faults', ''],
    ],
  },
]
