//! What is left of runs whose keepers were killed, as their zygote sees it.
//!
//! The zygote is a subreaper too: when a keeper is killed, its tree comes to the zygote, wherever its members went. So a
//! child of the zygote is either a keeper that it forked itself, or an orphan of one that is gone.

use std::collections::HashSet;

use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::subreaper::{children, descendants, kill, signal_member, wait_for};
use super::{SIGCONT, SIGKILL};
use crate::run::ExitStatus;

/// The zygote's children.
#[derive(Debug)]
pub struct Family {
    me: i32,
    /// Keepers that were not waited for: nobody else can have their numbers.
    keepers: HashSet<i32>,
}

impl Family {
    /// That of the calling process.
    pub fn mine() -> Self {
        Self { me: nix::unistd::getpid().as_raw(), keepers: HashSet::new() }
    }

    /// A keeper that was just forked.
    pub fn add(&mut self, keeper: i32) {
        self.keepers.insert(keeper);
    }

    pub fn has_keepers(&self) -> bool {
        !self.keepers.is_empty()
    }

    pub fn has_keeper(&self, keeper: i32) -> bool {
        self.keepers.contains(&keeper)
    }

    pub fn has_orphans(&self) -> bool {
        children(self.me).iter().any(|child| self.is_orphan(*child))
    }

    /// Collects whoever has ended. True if a keeper did not end by itself, so that there may be orphans.
    ///
    /// Here "any child" is the right question: nobody's end is of interest to anybody else in this process.
    pub fn reap(&mut self) -> bool {
        let mut killed = false;
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let ended = match waitid(Id::All, peek) {
                Ok(status) => status.pid().map(nix::unistd::Pid::as_raw),
                // Nobody has ended, or somebody by a real-time signal, for which nix has no name.
                Err(_) => {
                    children(self.me).into_iter().find(|child| wait_for(*child, nix::libc::WNOWAIT).is_some())
                }
            };
            let Some(child) = ended else { return killed };
            let by_itself = wait_for(child, 0) == Some(ExitStatus::Code(0));
            killed |= self.keepers.remove(&child) && !by_itself;
        }
    }

    /// A command can stop its keeper; whoever was stopped goes on.
    pub fn wake_keepers(&self) {
        for &keeper in &self.keepers {
            let _ = kill(keeper, SIGCONT);
        }
    }

    /// Asks every orphan, and all that descends from one, to end.
    pub fn terminate_orphans(&self, signal: i32) {
        let members = descendants(self.me, |child| self.is_orphan(child));
        for signal in [signal, SIGCONT] {
            for member in &members {
                let _ = signal_member(self.me, member, signal);
            }
        }
    }

    /// One pass of SIGKILL over the orphans and all that descends from them.
    pub fn kill_orphans(&self) {
        for child in children(self.me).into_iter().filter(|child| self.is_orphan(*child)) {
            let _ = kill(child, SIGKILL);
        }
        for member in descendants(self.me, |child| self.is_orphan(child)) {
            let _ = signal_member(self.me, &member, SIGKILL);
        }
    }

    fn is_orphan(&self, child: i32) -> bool {
        !self.keepers.contains(&child)
    }
}
