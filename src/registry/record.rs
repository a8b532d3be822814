//! What is written about a run, and the lines by which that changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(unix)]
use crate::contain::cgroup::Recorded;
use crate::identity::ProcessRef;
use crate::run::Policy;
pub use crate::run::State;
use crate::run::lifecycle::Timeout;

/// One run: an entry of the registry file, in the shape that people and other bots read.
///
/// The first five fields are those of the oldest files; one that has no more was written by somebody else, and what is
/// missing is unknown (see [`super::import`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The root's, or that of the registered process.
    pub pid: i32,
    /// Milliseconds since 1970, like all times here.
    pub started_at: u64,
    pub session_id: Option<String>,
    /// The owner's.
    pub bot_pid: i32,
    pub command_preview: String,

    pub run_id: String,
    /// `Exited`: it ended when its owner was gone, and the entry waits for the next bot to take note of it.
    pub state: State,
    /// The root, named for ever. `None`: an old entry, whose process can only be guessed at by its age.
    pub start_token: Option<ProcessRef>,
    /// The owner, likewise.
    pub bot_start_token: Option<ProcessRef>,
    /// The owner as a supervisor: one process may have several.
    pub owner_instance_id: Option<String>,
    /// Until then the owner is taken to be alive if that cannot be found out.
    pub lease_expires_at_ms: Option<u64>,
    /// The process group the root was in. The group is the run's only if the root leads it (`pgid == pid`).
    pub pgid: Option<i32>,
    pub containment: Containment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Keeper>,
    /// The run's cgroup, as a directory. It bears the keeper's name; one that does not is nobody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Windows: the name of the run's Job Object, if it has one: of those that may outlive their bot. It lives as long as the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Windows, of a run that may outlive its bot: its rules, which no keeper remembers then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<KeptRules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_key: Option<String>,
    /// The name of the service that it is. Services outlive their bots: no reaper and no shutdown ends one that runs, and there is at
    /// most one of each name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub grace_ms: u64,
    pub on_owner_exit: Policy,
    pub created_at_ms: u64,
    pub updated_at_ms: u64,
    pub last_output_at_ms: Option<u64>,
    /// Members of a registered process's group that were seen while it lived: they vouch for the group afterwards. On Windows, of a run
    /// that may outlive its bot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ProcessRef>,
    /// How it ended, if nobody was there to hear it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// What holds the tree together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// A keeper: nobody leaves.
    Keeper,
    /// A keeper, and a cgroup: nobody leaves, even when the keeper was killed.
    Cgroup,
    /// Windows, a Job Object: nobody leaves. A registered process is in one with what it has started since.
    Job,
    /// A registered process that leads its group.
    Group,
    /// A registered process in somebody else's group: it and its descendants.
    Process,
}

impl Containment {
    /// The run was spawned, and has or had a keeper.
    pub fn has_keeper(self) -> bool {
        matches!(self, Self::Keeper | Self::Cgroup)
    }
}

/// The run's keeper, and where it can be asked: an abstract Unix socket; on Windows, where the keeper is the bot, a named pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keeper {
    pub start_token: ProcessRef,
    pub address: String,
}

/// What whoever takes a run over has to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptRules {
    pub on_leader_exit: Policy,
    /// The overall deadline, counted from `startedAt`, and the signal it starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    pub at_ms: u64,
    /// As `RunExit.reason` has it, see [`crate::run::reason::Reason`].
    #[serde(default)]
    pub reason: String,
    /// What ended it, see [`crate::run::reason::Ending`].
    pub ending: String,
    /// The limit of the deadline that did, or 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub limit_ms: u64,
    pub exit_code: Option<i64>,
    pub signal: Option<i32>,
    /// How many processes could not be ended.
    pub survivors: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde wants it.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Record {
    /// One of which nothing is known; its owner is filled in by whoever writes it down.
    pub fn blank() -> Self {
        Self {
            pid: 0,
            started_at: 0,
            session_id: None,
            bot_pid: 0,
            command_preview: String::new(),
            run_id: String::new(),
            state: State::Running,
            start_token: None,
            bot_start_token: None,
            owner_instance_id: None,
            lease_expires_at_ms: None,
            pgid: None,
            containment: Containment::Process,
            keeper: None,
            cgroup: None,
            job: None,
            rules: None,
            backend_id: None,
            scope_key: None,
            service: None,
            labels: BTreeMap::new(),
            grace_ms: 5_000,
            on_owner_exit: Policy::Kill,
            created_at_ms: 0,
            updated_at_ms: 0,
            last_output_at_ms: None,
            members: Vec::new(),
            exit: None,
        }
    }

    /// The run's cgroup and whose it is to be.
    #[cfg(unix)]
    pub fn recorded_cgroup(&self) -> Option<Recorded<'_>> {
        Some(Recorded { path: self.cgroup.as_deref()?, keeper: &self.keeper.as_ref()?.start_token })
    }

    /// Whether a process is named as the run's keeper or as a member. Nobody of those answers for the run: what is done to it is done to
    /// them. (Where there is a job, the bot is the keeper itself.)
    pub fn has_part(&self, process: &ProcessRef) -> bool {
        let keeper = self.keeper.iter().filter(|_| self.containment != Containment::Job);
        keeper.map(|keeper| &keeper.start_token).chain(&self.members).any(|part| part == process)
    }

    /// Whoever becomes the owner is no part of the run any more, whatever somebody has written: an entry that says both is refused when
    /// it is read again.
    pub fn leave_out(&mut self, owner: &ProcessRef) {
        self.members.retain(|member| member != owner);
        if self.containment != Containment::Job {
            self.keeper.take_if(|keeper| keeper.start_token == *owner);
        }
    }

    /// What tells entries apart. The root's identity is unique for ever; run ids are chosen by people.
    pub fn key(&self) -> String {
        match &self.start_token {
            Some(token) => token.to_string(),
            None => format!("old:{}:{}", self.pid, self.started_at),
        }
    }
}

/// A change, one line of the journal. Applied in order by [`super::table::Table::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Line {
    /// Written before anything is started, or when a process is registered.
    Intent { entry: Box<Record> },
    /// The command runs.
    Started { key: String, at: u64 },
    /// The tree is being ended.
    Exiting { key: String, at: u64 },
    /// The tree is gone, and so is the owner: the entry stays.
    Ended { key: String, exit: Exit },
    /// The entry goes: its run is over and its owner knows, or nothing was started, or it was reaped.
    Dropped { keys: Vec<String> },
    /// Another owner for each of these, if the present one still is the one it is claimed from. Written before anything is
    /// signalled.
    Claimed { claims: Vec<Claim>, by: Owner, at: u64 },
    /// A claim is given up, if it still is this instance's: the entry is again as it was. Or it goes on otherwise than it was.
    Returned { entry: Box<Record>, by: String },
    /// The owner is well.
    Lease { instance: String, until: u64 },
    /// See [`Record::members`].
    Members { key: String, members: Vec<ProcessRef>, at: u64 },
}

/// An entry and its owner, as whoever wants it has seen them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub key: String,
    pub from: Option<String>,
}

/// Who answers for runs: a supervisor in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub instance: String,
    pub process: ProcessRef,
    pub lease_until: u64,
}
