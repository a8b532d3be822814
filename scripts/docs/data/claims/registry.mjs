// What docs/registry.md says in prose, see ../claims.mjs.

export const registry = [
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
    says: 'A registry that cannot be read is never taken for an empty one',
    tests: [['registry-unreadable', '']],
  },
  {
    page: 'registry.md',
    section: 'what-happens-when-',
    says: 'No content makes the reader panic, or ends another process',
    tests: [
      ['src/registry/import/tests/mutations.rs', '', 'reading'],
      ['src/reap/tests.rs', '', 'deciding'],
    ],
  },
  {
    page: 'registry.md',
    section: 'leases',
    says: 'A steal is recorded before the first signal, and only one of two thieves gets the run',
    tests: [['leases', '']],
  },
  {
    page: 'registry.md',
    section: 'reaping-1',
    says: 'The table of decisions, for every combination of facts',
    tests: [['src/reap/classify/tests.rs', '']],
  },
  {
    page: 'registry.md',
    section: 'the-event-log',
    says: 'The event log',
    tests: [['orphan-events', '']],
  },
  {
    page: 'registry.md',
    section: 'cancelling-from-anywhere',
    says: 'Cancel from another process',
    tests: [
      ['cancel-from-other-process', ''],
      ['cancel-despite-faults', ''],
    ],
  },
]
