// The promises of docs/guarantees.md: for each situation, what happens on each system, and the
// tests that show it.
// After an edit: npm run docs:tests. A test is [file, name, remark]; see cell.mjs.
import { absent, asLinux, no, partly, yes } from './cell.mjs'

export const guarantees = [
  {
    title: 'A run ends',
    rows: [
      {
        when: 'You cancel the run',
        promise: 'no process of the tree is left',
        linux: yes([
          ['hostile-trees', 'cancel ends'],
          ['cancel-from-other-process', 'a cancel from another process ends the whole tree of'],
        ]),
        cgroup: yes([['cgroup', 'a cancel in a cgroup leaves no process of']]),
        macos: partly('The keeper ends every member that it has seen. See [macOS](#macos).', [
          ['hostile-trees', 'cancel ends', 'without _hydra_ and _cleared-environment_'],
          ['cancel-from-other-process', 'a cancel from another process ends the whole tree of'],
        ]),
        windows: asLinux([['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:']]),
      },
      {
        when: 'A timeout expires',
        promise: 'the tree ends, by SIGKILL if needed',
        linux: yes(
          [
            ['run', 'ends the whole tree, after the grace period by SIGKILL'],
            ['deadlines', 'a run ends at its deadline although its command has stopped the keeper and the zygote'],
          ],
          'Also while the event loop is blocked, and if the command has stopped its keeper.',
        ),
        cgroup: yes([['cgroup-lifecycle', 'a deadline ends the whole tree and removes its cgroup']]),
        macos: asLinux(),
        windows: yes([['windows-trees', 'a timeout ends']]),
      },
      {
        when: 'The root process exits',
        promise: 'the rest of the tree ends',
        linux: yes(
          [
            ['hostile-trees', 'the exit of the root ends the rest of'],
            ['escapes', 'is an escape if the root exited by itself: reported, counted, and ended'],
          ],
          'If a member had left the session, the reason is `ownership-escape`.',
        ),
        cgroup: yes([['cgroup', 'keeps the run open, and is ended after the root exits:']], 'This includes a process that another process has put into the cgroup.'),
        macos: asLinux(),
        windows: yes([['windows-trees', 'the exit of the root ends the rest of']], 'No process can leave a job, so there is no `ownership-escape`.'),
      },
      {
        when: "… with `onLeaderExit: 'keep'`",
        promise: 'the rest lives on; `cancel` ends it',
        linux: yes([
          ['run', 'descendants live on, and a cancel ends them'],
          ['escapes', 'the run stays in the registry and in list(), as running'],
        ]),
        cgroup: yes([['cgroup-lifecycle', 'descendants live on in the cgroup, and a cancel ends them']]),
        macos: asLinux(),
        windows: asLinux(),
      },
    ],
  },
  {
    title: 'The bot ends',
    rows: [
      {
        when: 'The bot exits',
        promise: 'every run ends, within about 1.5 s',
        linux: yes([['bot-killed', 'a bot leaves no process when it ends by']]),
        cgroup: yes([['cgroup-lifecycle', 'exits, and its runs end with their cgroup']]),
        macos: asLinux(),
        windows: asLinux([], 'At once: the kernel ends the jobs.'),
      },
      {
        when: 'The bot is killed',
        promise: 'every run ends',
        linux: yes([['bot-killed', 'a bot SIGKILLed at random instants leaves no process of']], 'The keepers end their runs. With a cgroup, the keeper also removes the cgroup.'),
        cgroup: yes([['cgroup', 'after only the bot is killed, the keeper ends the run and removes the cgroup']]),
        macos: asLinux([['bot-killed', 'a bot SIGKILLed at random instants leaves no process of', 'without _hydra_ and _cleared-environment_']]),
        windows: yes(
          [
            ['windows-trees', 'TerminateProcess of the bot'],
            ['bot-killed', 'a bot SIGKILLed at random instants leaves no process of'],
          ],
          'The kernel ends the jobs, also after `TerminateProcess`.',
        ),
      },
      {
        when: '… while it starts runs',
        promise: 'no process is left or unrecorded',
        linux: yes([
          ['bot-killed', 'a bot SIGKILLed at random instants leaves no process of', 'every second instant'],
          ['registry-crash', '', 'at every single write'],
        ]),
        cgroup: yes([['cgroup-lifecycle', 'is killed while it starts runs, and neither a process nor a cgroup is left']]),
        macos: asLinux(),
        windows: asLinux([['windows-trees', 'while it starts runs leaves no process']]),
      },
      {
        when: '… and the run is kept',
        promise: 'the next bot gets all of the run',
        linux: yes([['kept-runs', 'survives the SIGKILL of its bot completely, and is adopted and cancelled:']], 'It can adopt, cancel or reap the run.'),
        cgroup: yes([['cgroup', 'a kept run is adopted with its cgroup']]),
        macos: asLinux(),
        windows: asLinux([['windows-trees', 'alive if the run is kept, and the next bot ends all of it']]),
      },
      {
        when: '… and the run has a timeout',
        promise: 'the keeper applies the timeout',
        linux: yes([['kept-runs', 'ends at its deadline after its bot died, and its keeper records that']]),
        cgroup: yes([['cgroup-lifecycle', 'is killed, and the keeper of its kept run enforces the deadline']]),
        macos: asLinux(),
        windows: no('No process applies the timeout while no bot runs.'),
      },
      {
        when: '… and the run ends meanwhile',
        promise: 'the keeper records how it ended',
        linux: yes([['adopt', 'that exited before the adoption is exited and has its exit code']]),
        cgroup: yes([['cgroup-lifecycle', 'is killed, its kept run ends, and the next bot learns how']]),
        macos: asLinux(),
        windows: no('The next bot finds that the run is gone. It cannot find out how it ended.'),
      },
      {
        when: 'A service loses its starter',
        promise: 'the service lives on',
        linux: yes(
          [
            ['service', 'it survives SIGKILL of its starter, and a later reapOrphans'],
            ['service-start', 'SIGKILL of its starter does not stop it, and other callers get it'],
          ],
          'It is not an orphan. The next `ensureService` finds it.',
        ),
        cgroup: yes([['cgroup-lifecycle', 'that started a service is killed, and the service lives on in its cgroup']]),
        macos: asLinux(),
        windows: asLinux([], 'It is not an orphan. The next `ensureService` finds it by the name of its job, and does not check which process has the port.'),
      },
    ],
  },
  {
    title: 'Helpers are killed, and the next bot cleans up',
    rows: [
      {
        when: 'The keeper is killed',
        promise: 'the tree ends; the reason is `lost`',
        linux: yes([['keeper-killed', 'after its keeper is killed, a run is lost and no process is left of']], 'The zygote, the parent of all keepers, ends the tree.'),
        cgroup: yes([['cgroup', 'while the bot lives and']]),
        macos: partly('The bot ends each process that kept its session, group, parent or a readable cookie. Not promised: ' + 'other processes. They become children of launchd, not of the zygote.', [
          ['keeper-killed', 'after keeper and zygote were killed together, a run is lost and its traceable members end:'],
        ]),
        windows: absent('Windows has no keeper. The kernel does its work.'),
      },
      {
        when: 'Bot, keeper, zygote are killed',
        promise: 'the next `reapOrphans` ends the tree',
        linux: partly(
          'The tree runs until then. `reapOrphans` ends each process that kept its group, its parent or its ' +
            'environment. Not promised: a process that has lost all three. `reapOrphans` cannot find it.',
          [
            ['reap', 'is dead, reapOrphans itself ends the tree:'],
            ['keeper-killed', 'but a process that cleared its environment and left the group lives on'],
          ],
        ),
        cgroup: yes([
          ['cgroup', 'after bot, zygote and keeper were killed together, reapOrphans leaves no process of'],
          ['cgroup', 'a daemon that cleared its environment and left its session, when no other member is left'],
        ]),
        macos: partly("As on Linux, but the environment of Apple's own programs cannot be read. See [macOS](#macos).", [['reap', 'is dead, reapOrphans itself ends the tree:']]),
        windows: absent('There is only the bot. See “The bot is killed” above.'),
      },
      {
        when: 'The machine reboots',
        promise: 'the entry is dropped, no signal sent',
        linux: yes([['reap', 'before a reboot, its entry is dropped, and the process that has its PID now lives on', 'the test writes another boot into the entry']]),
        cgroup: asLinux(),
        macos: asLinux([], 'The boot is identified by `kern.bootsessionuuid`.'),
        windows: yes(
          [
            ['windows-pid-reuse', 'a root process whose run has no other process left'],
            ['reap', 'before a reboot, its entry is dropped, and the process that has its PID now lives on', 'the test writes another boot into the entry'],
          ],
          'A process is identified by its creation time, which differs in every boot. An entry that names another boot is dropped.',
        ),
      },
      {
        when: 'The PID is reused',
        promise: 'the new process gets no signal',
        linux: yes(
          [['reap-pid-reuse', 'a reused PID leads to no wrong signal and hides no orphan: the PID of the', 'the test makes the kernel reuse the PID']],
          'The members of the run are still found.',
        ),
        cgroup: asLinux(),
        macos: partly(
          'Between two system calls there is a [race](identity.md#on-macos). A test cannot force the kernel to ' + 'reuse a PID, so the tests use a simulated system that reuses PIDs all the time.',
          [
            ['reap-strangers', 'if the PID of the root process is reused', 'the test writes another start time into the entry'],
            ['src/contain/kqueue_members/tests.rs', 'rare_scans_claim_no_other_process_and_forget_no_member'],
          ],
        ),
        windows: yes(
          [
            ['windows-pid-reuse', 'a reused PID leads to no wrong signal and hides no orphan: the PID of', 'the test uses PIDs up until the PID is reused'],
            ['reap-strangers', 'by the leader of a new group, no member of that group is signalled'],
            ['src/identity/windows.rs', 'an_ended_process_keeps_its_pid_while_a_handle_is_open'],
          ],
          'The members of the run are still found. While we hold a handle of a process, Windows does not reuse its PID.',
        ),
      },
      {
        when: 'Root and bot gone, others live',
        promise: '`reapOrphans` ends proven members',
        linux: yes([['reap-strangers', 'a process group whose root process is dead']], 'It ends the group if a proven member is in it. Otherwise it does not touch the group.'),
        cgroup: yes([['cgroup', 'reapOrphans ends all members and removes the cgroup']], 'Every process in the cgroup is proven.'),
        macos: asLinux(),
        windows: partly(
          'Of a kept run: the members that were recorded while the bot lived, and their descendants. Not ' + 'promised: a process that started after the bot had died, if the root is gone too.',
          [['escapes', 'a reaper ends the kept run if no bot adopts it']],
        ),
      },
      {
        when: 'A process looks like an orphan',
        promise: 'reported; ended only with `force`',
        linux: yes(
          [
            ['suspects', 'findOrphans suspects a process'],
            ['watch-orphans', ''],
          ],
          'A process that is in no registry is only a [suspect](orphans.md). `watchOrphans` never ends a suspect.',
        ),
        cgroup: asLinux(),
        macos: asLinux(),
        windows: yes([['suspects', 'because it descends from this bot']], 'Only descent makes a process a suspect, because its working directory cannot be read.'),
      },
    ],
  },
  {
    title: 'A process tries to leave the tree',
    rows: [
      {
        when: 'It calls `setsid`',
        promise: 'it ends with the tree',
        linux: yes([['hostile-trees', 'cancel ends', '_half-setsid_']]),
        cgroup: yes([['cgroup', 'a cancel in a cgroup leaves no process of']]),
        macos: yes([['hostile-trees', 'cancel ends', '_half-setsid_']], 'The keeper finds it as a child of a member, or by its session.'),
        windows: absent('Windows has no sessions. For a process group or console see “It is detached”.'),
      },
      {
        when: 'It double-forks',
        promise: 'it ends with the tree',
        linux: yes([['hostile-trees', 'cancel ends', '_double-fork-daemon_']], 'The keeper becomes its parent.'),
        cgroup: yes([['cgroup', 'a cancel in a cgroup leaves no process of']]),
        macos: partly('The keeper finds it if it saw the process or its parent before the parent exited, or by the cookie.', [['hostile-trees', 'cancel ends', '_double-fork-daemon_']]),
        windows: yes([['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:', '_double-fork-daemon_']], 'It stays in the job.'),
      },
      {
        when: 'It is detached',
        promise: 'it ends with the tree',
        linux: yes([['hostile-trees', 'cancel ends', '_half-setsid_']], 'On Unix, detached means `setsid`.'),
        cgroup: yes([['cgroup', 'a cancel in a cgroup leaves no process of']]),
        macos: asLinux(),
        windows: yes(
          [
            ['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:', '_half-setsid_, _new-console_'],
            ['windows-trees', 'the exit of the root ends the rest of'],
            ['windows-trees', 'TerminateProcess of the bot'],
          ],
          'Also with `DETACHED_PROCESS`, its own group, or its own console.',
        ),
      },
      {
        when: 'It clears its environment',
        promise: 'it ends with the tree',
        linux: yes([['hostile-trees', 'cancel ends', '_cleared-environment_']]),
        cgroup: yes([['cgroup', 'a daemon that cleared its environment and left its session, when no other member is left']]),
        macos: partly('Not promised together with a double fork and `setsid`: then it can escape between two scans.', [
          ['src/contain/kqueue_members/tests.rs', 'an_orphan_that_left_its_session_unseen_is_found_only_by_its_cookie'],
        ]),
        windows: yes([['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:', '_cleared-environment_']]),
      },
      {
        when: 'It forks all the time',
        promise: 'all of it ends',
        linux: yes([
          ['hostile-trees', 'cancel ends', '_hydra_'],
          ['bot-killed', 'a bot SIGKILLed at random instants leaves no process of'],
        ]),
        cgroup: yes(
          [
            ['cgroup', 'of a run whose members live only 500 µs and have no environment,'],
            ['cgroup', 'limits.'],
          ],
          '`limits.processes` also bounds how many processes there can be.',
        ),
        macos: partly('The keeper stops every member before it kills the first one. Not promised: processes that leave ' + 'their session at once and live for microseconds.', [
          ['hostile-trees', 'does not protect children that a SIGTERM handler starts'],
        ]),
        windows: yes([['hostile-trees', 'cancel ends', '_hydra_']], '`limits.processes` also bounds how many processes there can be.'),
      },
      {
        when: 'It leaves its job or cgroup',
        promise: 'it ends with the tree',
        linux: absent(),
        cgroup: partly('Not promised for root, which may move a process to another cgroup. That process is still a ' + 'descendant, and the keeper ends it.', [
          ['cgroup', 'a descendant that moved to another cgroup is ended'],
        ]),
        macos: absent(),
        windows: yes([['windows-trees', 'no process breaks away from the job']], 'The kernel refuses `CREATE_BREAKAWAY_FROM_JOB`.'),
      },
      {
        when: 'It changes its user',
        promise: 'it ends with the tree',
        linux: no('The kernel may refuse our signals to it. Then it is in `survivors`, with the reason. A reaper that may not signal ' + 'it reports that, and changes nothing.', [
          ['cgroup-lifecycle', 'is reported as a survivor with the reason, and the cancel does not wait for it forever'],
          ['reap-strangers', 'run as failed with the reason, and leaves its entry unchanged'],
        ]),
        cgroup: yes([['cgroup-lifecycle', 'is ended in a cgroup, because cgroup.kill needs no permission for each process']], 'The kernel kills a cgroup without a check of permissions.'),
        macos: no('As on Linux, the kernel may refuse our signals to it. A reaper that may not signal it reports that, and changes nothing.', [
          ['reap-strangers', 'run as failed with the reason, and leaves its entry unchanged'],
        ]),
        windows: yes(
          [
            ['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:', '_denying-child_'],
            ['windows-trees', 'TerminateProcess of the bot'],
            ['windows-trees', 'a root process that no other process may open'],
          ],
          'The job ends a member that the bot may not open, for example an elevated one. It ends such a root, too. But the next bot cannot: it reports that and leaves the root alone.',
        ),
      },
      {
        when: 'It uses another daemon',
        promise: 'what that daemon starts ends, too',
        linux: no(
          'The started process belongs to that daemon, and is not found. Examples: `systemd-run`, `dockerd`, a running ' +
            'tmux server; on macOS launchd, `open`, Apple events; on Windows a service, the task scheduler, WMI.',
          [['another-daemon', 'a process that another daemon starts for a run survives the cancel of the run']],
        ),
        cgroup: asLinux(),
        macos: asLinux(),
        windows: asLinux(),
      },
    ],
  },
  {
    title: 'Other processes of a tree',
    rows: [
      {
        when: 'It is stopped',
        promise: 'it ends with the tree',
        linux: yes([['hostile-trees', 'cancel ends', '_stopped_']]),
        cgroup: yes([['cgroup', 'a cancel in a cgroup leaves no process of']]),
        macos: asLinux(),
        windows: yes(
          [
            ['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:', '_suspended_'],
            ['windows-trees', 'a timeout ends'],
            ['windows-trees', 'TerminateProcess of the bot'],
          ],
          'Also if its threads are suspended or never started. Windows has no signal that stops a process.',
        ),
      },
      {
        when: 'It ignores SIGTERM',
        promise: 'it gets SIGKILL after `graceMs`',
        linux: yes([['hostile-trees', 'is waited for in full if a process ignores SIGTERM']]),
        cgroup: yes([['cgroup', 'a cancel in a cgroup leaves no process of']]),
        macos: asLinux(),
        windows: yes(
          [['windows-trees', 'a cancel ends the tree, and a bystander with the same program lives on:', '_ignores-sigterm_']],
          'CTRL_BREAK takes the place of SIGTERM. Wine cannot test the grace period.',
        ),
      },
      {
        when: 'It cleans up on SIGTERM',
        promise: 'it gets the time, up to `graceMs`',
        linux: yes([['hostile-trees', 'gives processes time to clean up, and ends as soon as they have']]),
        cgroup: yes([['cgroup-lifecycle', 'a command that cleans up on SIGTERM gets the time to do so']]),
        macos: asLinux(),
        windows: partly('CTRL_BREAK takes the place of SIGTERM. Not promised if the process does not share the console of the bot: ' + 'then it ends at once. Wine cannot run this test.', [
          ['hostile-trees', 'gives processes time to clean up, and ends as soon as they have'],
        ]),
      },
      {
        when: 'It is a bot itself',
        promise: 'its own runs end with it',
        linux: yes([['nested-bots', 'a bot that is an owned run']], 'It is the owner of its own runs.'),
        cgroup: yes([['cgroup', 'a bot that is in a cgroup creates the cgroups of its runs below it']], 'It creates the cgroups of its runs below its own.'),
        macos: asLinux(),
        windows: yes([['windows-trees', 'a bot that is a run itself']], 'Jobs nest.'),
      },
      {
        when: 'It is only registered',
        promise: '`cancel` ends it with its group',
        linux: yes(
          [
            ['end-registered', 'a group leader with its whole group'],
            ['end-registered', 'after the bot dies, a registered process lives on, and the next bot ends'],
          ],
          'When the bot dies, it lives on until the next `reapOrphans`.',
        ),
        cgroup: absent(),
        macos: asLinux(),
        windows: partly('`registerProcess` puts it into a job; `cancel` ends what it starts from then on. Not promised: an ' + 'older descendant whose own parent has exited.', [
          ['end-registered', 'a group leader with descendants that left its group'],
        ]),
      },
    ],
  },
]
