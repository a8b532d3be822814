// What docs/security.md says in prose, see ../claims.mjs.

export const security = [
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
    says: 'A process that has taken the address of a keeper is not believed',
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
    says: 'It speaks in place of its keeper',
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
    says: 'Any one field is changed to point at another process',
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
    says: 'Metrics contain only our own labels',
    tests: [['security-texts', 'metricsText() contains no label that a caller chooses']],
  },
  {
    page: 'security.md',
    section: 'secrets',
    says: 'No value of an environment is written to disk or given to the keeper',
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
]
