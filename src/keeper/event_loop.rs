//! The keeper process: fork an exec stub, wait for a run, contain its tree, report, exit.
//!
//! This file waits for events: requests, signals, timeouts. [`Core`] decides what follows from them.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, Pid};

use super::connections::{Connections, Received, encode};
use super::control_request::ControlRequest;
use super::core::{Core, Platform};
use super::protocol::{self, AssignRun, InCgroup, Report, Request};
use super::signals::Signals;
use super::{cgroup_fork, channel, exec_stub, signals, title};
use crate::contain::cgroup::{Cgroup, CgroupError};
use crate::contain::inside::{self, Tree};
use crate::identity::helpers::KEEPER_NAME;
use crate::run::lifecycle::{Lifecycle, Rules};
use crate::trace::{self, trace};

/// How long the keeper stays to report an end that it could not write to the registry.
const REMEMBER_MS: u64 = 60 * 60 * 1_000;
/// Interval at which it tries to write that end again.
const RETRY_MS: u64 = 30_000;

/// Forks an exec stub, waits for a run, and returns when the run's tree is extinct.
///
/// `Err` means that the keeper could not fork the exec stub, or that members have survived. If the
/// cgroup or the fork failed, the bot gets a report.
pub fn keep(control: OwnedFd, launch: OwnedFd, bot: Pid, order: Option<&InCgroup>) -> Result<(), Errno> {
    inside::become_subreaper()?;
    let signals = signals::listen()?;
    title::set(KEEPER_NAME, "spawn-owned-keeper waiting");
    let cgroup = match cgroup_fork::build(order) {
        Ok(cgroup) => cgroup,
        Err(error) => return report_cgroup_error(&control, error),
    };
    let (ready_reader, ready_writer) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    // SAFETY: this process has one thread. The child makes system calls, and then calls `exec` or
    // exits.
    let root = match unsafe { cgroup_fork::fork_child(cgroup.as_ref(), &ready_writer) } {
        Ok(ForkResult::Child) => {
            drop((control, signals, ready_reader));
            exec_stub::wait(launch, ready_writer, bot);
        }
        Ok(ForkResult::Parent { child }) => child.as_raw(),
        Err(errno) => {
            if let Some(cgroup) = cgroup {
                return report_cgroup_error(&control, cgroup_fork::remove_after_failure(&cgroup, errno));
            }
            // So the bot can report the errno instead of a lost keeper.
            channel::send_all(&control, &encode(&[Report::NoRoot { errno: errno as i32 }]), &[])?;
            return Err(errno);
        }
    };
    drop((launch, ready_writer));
    if let Err(error) = cgroup_fork::wait_until_ready(ready_reader, root, cgroup.as_ref()) {
        return report_cgroup_error(&control, error);
    }
    let mut keeper = Keeper::new(control, signals, root, cgroup)?;
    keeper.wait_for_run();
    keeper.run_until_over();
    keeper.wait_until_end_is_known();
    // The kernel reparents survivors to the zygote, which ends them if this keeper's exit status is
    // not 0.
    if keeper.core.has_survivors() { Err(Errno::EBUSY) } else { Ok(()) }
}

struct Keeper {
    core: Core<Tree, Connections>,
    signals: Signals,
}

impl Keeper {
    /// Reports the exec stub to the bot. The default rules apply until [`Request::AssignRun`]
    /// arrives: if the bot dies, the tree ends.
    fn new(control: OwnedFd, signals: Signals, root: i32, cgroup: Option<Cgroup>) -> Result<Self, Errno> {
        let mut connections = Connections::new(control, root, cgroup.as_ref())?;
        let tree = Tree::new(root, cgroup)?;
        let ready = connections.ready();
        connections.send_to_owner(&[ready]);
        let core = Core::new(tree, connections, Lifecycle::new(Rules::default()));
        Ok(Self { core, signals })
    }

    /// Blocks until the bot assigns a run, the bot exits, or a control client cancels the run.
    ///
    /// The keeper does not scan the tree here. It needs the rules to decide what an exit means.
    ///
    /// The bot sends the command to the exec stub first, and then the rules to the keeper. If the
    /// bot dies between the two messages, the tree may exist already. The keeper then ends it. If
    /// the bot is stopped between them, the registry already has the entry, so control clients can
    /// connect as usual.
    fn wait_for_run(&mut self) {
        while !self.core.is_ending() && !self.core.platform.is_assigned() {
            match self.core.platform.inbox.next_payload() {
                Ok(Some(payload)) => {
                    let Ok(Request::AssignRun(run)) = protocol::decode(&payload) else {
                        return self.owner_gone();
                    };
                    self.take_run(&run);
                    // The inbox may hold further requests, which `poll` does not report.
                    return self.handle_requests();
                }
                Ok(None) => {}
                Err(_) => return self.owner_gone(),
            }
            let Woken { owner_ready, clients_ready, .. } = self.sleep_watching(None, Watch::Connections);
            // The owner first: its rules decide what its exit means to a client that adopts the run.
            if owner_ready && self.core.platform.receive() == Received::EndOfFile {
                return self.owner_gone();
            }
            if clients_ready {
                self.serve_control_clients();
            }
        }
    }

    /// Stores the rules of the run.
    fn take_run(&mut self, run: &AssignRun) {
        // The title does not contain the command: an agent that runs `pkill -f "next dev"` to end
        // its dev server must not kill its own keeper.
        title::set(KEEPER_NAME, &format!("spawn-owned-keeper {}", run.run_id));
        trace::set_run(run.run_id);
        trace!("received AssignRun from the owner");
        self.core.tree.expect_carriers(run.cookie_key);
        self.core.platform.set_entry(run.registry, run.key);
        let &AssignRun { on_owner_exit, on_leader_exit, grace_ms, timeout, .. } = run;
        self.core.set_rules(Rules { on_owner_exit, on_leader_exit, grace_ms, timeout, ..Rules::default() });
    }

    /// Runs the event loop until the tree is extinct, or the keeper gives up on its survivors.
    fn run_until_over(&mut self) {
        while !self.core.is_over() {
            let Woken { signalled, owner_ready, clients_ready } = self.sleep(self.core.wake_in());
            let must_shut_down = signalled && self.signals.take();
            if signalled {
                self.core.tree_changed();
            }
            if signalled || owner_ready || self.core.must_scan() {
                self.core.check_tree();
            }
            if clients_ready {
                self.serve_control_clients();
            }
            if must_shut_down {
                self.core.shut_down();
            }
            if owner_ready {
                self.serve_owner();
            }
            self.core.tick();
        }
    }

    /// Stays until the end of the run is known, for at most [`REMEMBER_MS`].
    ///
    /// Returns at once if the owner has received the end or the registry contains it. Otherwise it
    /// retries the write, and reports the end to control clients and to the next owner.
    fn wait_until_end_is_known(&mut self) {
        let give_up_at = self.now().saturating_add(REMEMBER_MS);
        // A client that becomes the owner now received the end when it connected.
        while !self.core.is_end_known()
            && !self.core.platform.has_owner()
            && !self.core.platform.server.address().is_empty()
            && self.now() < give_up_at
        {
            let woken = self.sleep(Some(RETRY_MS.min(give_up_at.saturating_sub(self.now()))));
            if woken.signalled && self.signals.take() {
                return;
            }
            if woken.clients_ready {
                self.serve_control_clients();
            }
            // Also after a connection: that client may have freed disk space.
            self.core.record_end();
        }
    }

    fn now(&self) -> u64 {
        self.core.platform.now()
    }

    /// Sleeps until an event, for at most `limit` milliseconds.
    fn sleep(&self, limit: Option<u64>) -> Woken {
        self.sleep_watching(limit, Watch::Everything)
    }

    /// Like [`Keeper::sleep`], but only watched events end the sleep. A later poll still reports
    /// the others.
    fn sleep_watching(&self, limit: Option<u64>, watch: Watch) -> Woken {
        // If the limit exceeds poll's range, poll returns early and the loop calls it again.
        let timeout =
            limit.map_or(PollTimeout::NONE, |ms| i32::try_from(ms).map_or(PollTimeout::MAX, poll_timeout));
        let Connections { control, server, .. } = &self.core.platform;
        let first = [Some(self.signals.as_fd()), control.as_ref().map(AsFd::as_fd)];
        let watched = first.into_iter().flatten().chain(server.watched());
        let mut fds: Vec<_> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let clients = 1 + usize::from(control.is_some())..fds.len();
        match watch {
            Watch::Everything => fds.extend(self.core.tree.changes()),
            Watch::Connections => fds[0].set_events(PollFlags::empty()),
        }
        // EINTR is impossible: no signal has a handler.
        let _ = poll(&mut fds, timeout);
        let ready = |fd: &PollFd| fd.any().unwrap_or(false);
        Woken {
            signalled: ready(&fds[0]) || fds[clients.end..].iter().any(ready),
            owner_ready: control.is_some() && ready(&fds[1]),
            clients_ready: fds[clients].iter().any(ready),
        }
    }

    /// Accepts control clients and carries out their requests.
    ///
    /// A new client receives the reports that the last owner may have missed.
    fn serve_control_clients(&mut self) {
        let missed = encode(&self.core.missed_reports());
        self.core.platform.server.accept_clients(&missed);
        for (client, request) in self.core.platform.server.take_requests() {
            if request == ControlRequest::Adopt {
                self.serve_exited_owner();
            }
            self.core.serve_client(&client, request);
        }
    }

    /// Carries out what an owner that has exited sent before.
    ///
    /// A client that adopts the run can know of the last owner's death before the keeper does. The
    /// unread bytes may be the rules of the run: without them, the keeper would end a run that it
    /// must keep.
    fn serve_exited_owner(&mut self) {
        if !self.core.platform.has_owner_hung_up() {
            return;
        }
        // The owner sends no more, so this ends. After the last byte comes the end of file.
        while self.core.platform.receive() == Received::Bytes {}
        self.handle_requests();
        if self.core.platform.has_owner() {
            self.owner_gone();
        }
    }

    /// Carries out all requests of the owner. End of file and invalid bytes mean that the owner is
    /// gone.
    fn serve_owner(&mut self) {
        match self.core.platform.receive() {
            Received::EndOfFile => self.owner_gone(),
            Received::Bytes | Received::Nothing => self.handle_requests(),
        }
    }

    fn handle_requests(&mut self) {
        loop {
            let payload = match self.core.platform.inbox.next_payload() {
                Ok(Some(payload)) => payload,
                Ok(None) => return,
                Err(_) => return self.owner_gone(),
            };
            let is_valid = match protocol::decode(&payload) {
                // A control client cancelled the run before the bot assigned it.
                Ok(Request::AssignRun(run)) if !self.core.platform.is_assigned() => {
                    self.take_run(&run);
                    true
                }
                Ok(request) => self.core.serve_owner(&request),
                Err(_) => false,
            };
            if !is_valid {
                return self.owner_gone();
            }
        }
    }

    fn owner_gone(&mut self) {
        self.core.owner_gone();
    }
}

/// Reports to the bot that this keeper gets no run.
fn report_cgroup_error(control: &OwnedFd, error: CgroupError) -> Result<(), Errno> {
    channel::send_all(control, &encode(&[Report::NoCgroup(error)]), &[])
}

/// Which events end a sleep.
#[derive(Debug, Clone, Copy)]
enum Watch {
    Everything,
    /// Only the owner and control clients; neither signals nor changes of the tree.
    Connections,
}

/// Why a sleep ended; all false after a timeout.
struct Woken {
    /// A signal has arrived, or the tree has changed.
    signalled: bool,
    /// The owner has sent bytes, or has closed its end.
    owner_ready: bool,
    /// A control client has connected, has sent bytes, or has closed its end.
    clients_ready: bool,
}

fn poll_timeout(ms: i32) -> PollTimeout {
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}
