//! A registry entry ([`Record`]), and the journal lines that change it ([`Line`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(unix)]
use crate::contain::cgroup::Recorded;
use crate::identity::ProcessRef;
pub use crate::run::State;
use crate::run::lifecycle::Timeout;
use crate::run::reason::Ending;
use crate::run::{Cause, Ended, ExitStatus, Policy, Unlisted};

/// One run: an entry of the registry file, in the form that users and other bots read.
///
/// The oldest file formats have only the first five fields. An entry with no other fields comes
/// from another program; the missing values are unknown (see [`super::import`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// PID of the root process, or of the registered process.
    pub pid: i32,
    /// In milliseconds since 1970, like all times here.
    pub started_at: u64,
    pub session_id: Option<String>,
    /// PID of the owner.
    pub bot_pid: i32,
    pub command_preview: String,

    pub run_id: String,
    /// `Exited`: the run ended after its owner was gone. The entry stays until the next bot reports
    /// it.
    pub state: State,
    /// Identity of the root process. `None`: an old entry, whose process is identified only by PID
    /// and age.
    pub start_token: Option<ProcessRef>,
    /// Identity of the owner. `None`: an old entry.
    pub bot_start_token: Option<ProcessRef>,
    /// The supervisor that owns the run. One process may have several supervisors.
    pub owner_instance_id: Option<String>,
    /// Until this time the owner counts as alive if its state cannot be determined.
    pub lease_expires_at_ms: Option<u64>,
    /// Process group of the root process. The group belongs to the run only if the root process
    /// leads it (`pgid == pid`).
    pub pgid: Option<i32>,
    pub containment: Containment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Keeper>,
    /// The secret part of the run's [`cookie`](crate::contain::cookie): a process that carries it
    /// is a member of the run.
    ///
    /// `None`: a registered process, or an entry of an older version. Then the cookie makes no
    /// process a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie_key: Option<String>,
    /// Directory of the run's cgroup. Its name contains the keeper's identity; a directory with
    /// another name does not belong to the run and is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Windows: name of the run's Job Object. Only a run that may outlive its bot has a named job.
    /// The job exists as long as the root process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Windows: the rules of a run that may outlive its bot, because no keeper process remembers
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<TakeoverRules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_key: Option<String>,
    /// Name of the service, if the run is one.
    ///
    /// A service outlives its bot: no reaper and no shutdown ends a running service. At most one
    /// service of each name exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the bot wants to remember about the run: any JSON value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    pub grace_ms: u64,
    pub on_owner_exit: Policy,
    pub created_at_ms: u64,
    pub updated_at_ms: u64,
    pub last_output_at_ms: Option<u64>,
    /// Members of a registered process's group that were seen while the process lived. If one of
    /// them is alive, the group still belongs to the run.
    ///
    /// On Windows: members of a run that may outlive its bot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ProcessRef>,
    /// How the run ended, if the owner was gone by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// The mechanism that holds a process tree together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// A keeper: no member can leave.
    Keeper,
    /// A keeper and a cgroup: no member can leave, even if the keeper was killed.
    Cgroup,
    /// Windows, a Job Object: no member can leave. The job of a registered process contains that
    /// process and what it starts after the registration.
    Job,
    /// A registered process that leads its process group.
    Group,
    /// A registered process in a group that it does not lead: it and its descendants.
    Process,
}

impl Containment {
    /// Whether the run was spawned, so that it has or had a keeper.
    pub fn has_keeper(self) -> bool {
        matches!(self, Self::Keeper | Self::Cgroup)
    }
}

/// The run's keeper and its control address.
///
/// The address is an abstract Unix socket. On Windows the bot is the keeper, and the address is a
/// named pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keeper {
    pub start_token: ProcessRef,
    pub address: String,
}

/// The rules that a bot needs when it takes a run over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeoverRules {
    pub on_leader_exit: Policy,
    /// The overall deadline, counted from `startedAt`, and the first signal it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
}

/// How a run ended, as the registry's JSON: the form of [`Ended`] in files.
///
/// Names are text, so that an end which a later version wrote is kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    pub at_ms: u64,
    /// The value of `RunExit.reason`, see [`crate::run::reason::Reason`].
    #[serde(default)]
    pub reason: String,
    /// What ended the run, see [`crate::run::reason::Ending`].
    pub ending: String,
    /// The limit of the deadline that ended the run, or 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub limit_ms: u64,
    pub exit_code: Option<i64>,
    pub signal: Option<i32>,
    /// Number of processes that could not be ended.
    pub survivors: usize,
}

impl Exit {
    pub fn of(ended: &Ended, at_ms: u64) -> Self {
        Self {
            at_ms,
            reason: ended.reason().name().to_owned(),
            ending: ended.ending.name().to_owned(),
            limit_ms: ended.limit_ms,
            exit_code: ended.status.and_then(ExitStatus::code),
            signal: ended.status.and_then(ExitStatus::signal),
            survivors: ended.survivor_count(),
        }
    }

    /// The end. The registry does not contain the lists of processes. An ending that this version
    /// does not know counts as an exit of the root.
    pub fn ended(&self) -> Ended {
        let ending = Ending::named(&self.ending).unwrap_or(Ending::Cause(Cause::RootExit));
        let survivors = u32::try_from(self.survivors).unwrap_or(u32::MAX);
        Ended {
            named_reason: self.reason.clone(),
            limit_ms: self.limit_ms,
            status: self.exit_code.map(ExitStatus::Code).or(self.signal.map(ExitStatus::Signal)),
            unlisted: Unlisted { survivors, ..Unlisted::default() },
            ..Ended::new(ending)
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Record {
    /// A record without any information. The registry sets the owner when it writes the record.
    pub fn empty() -> Self {
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
            cookie_key: None,
            cgroup: None,
            job: None,
            rules: None,
            backend_id: None,
            scope_key: None,
            service: None,
            labels: BTreeMap::new(),
            metadata: None,
            grace_ms: 5_000,
            on_owner_exit: Policy::Kill,
            created_at_ms: 0,
            updated_at_ms: 0,
            last_output_at_ms: None,
            members: Vec::new(),
            exit: None,
        }
    }

    /// The run's cgroup, and the keeper that its directory name must contain.
    #[cfg(unix)]
    pub fn recorded_cgroup(&self) -> Option<Recorded<'_>> {
        Some(Recorded { path: self.cgroup.as_deref()?, keeper: &self.keeper.as_ref()?.start_token })
    }

    /// Whether the owner has registered itself.
    pub fn is_owner_itself(&self) -> bool {
        self.containment == Containment::Process
            && self.start_token.is_some()
            && self.start_token == self.bot_start_token
    }

    /// Whether the record names `process` as the run's keeper or as a member.
    ///
    /// Such a process cannot own the run, because an action on the run also hits its members. With
    /// a Job Object the bot itself is the keeper, so the keeper does not count.
    pub fn has_part(&self, process: &ProcessRef) -> bool {
        let keeper = self.keeper.iter().filter(|_| self.containment != Containment::Job);
        keeper.map(|keeper| &keeper.start_token).chain(&self.members).any(|part| part == process)
    }

    /// Removes the new owner from the members and from the keeper field.
    ///
    /// [`super::import`] refuses an entry that names its owner as a member, so such an entry must
    /// not be written.
    pub fn leave_out(&mut self, owner: &ProcessRef) {
        self.members.retain(|member| member != owner);
        if self.containment != Containment::Job {
            self.keeper.take_if(|keeper| keeper.start_token == *owner);
        }
    }

    /// The entry's key.
    ///
    /// It is the identity of the root process, which is unique; run ids are chosen by users.
    pub fn key(&self) -> String {
        match &self.start_token {
            Some(token) => token.to_string(),
            None => format!("old:{}:{}", self.pid, self.started_at),
        }
    }
}

/// One change: a line of the journal. [`super::table::Table::apply`] applies the lines in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Line {
    /// Written before the command starts, or when a process is registered.
    Intent { entry: Box<Record> },
    /// The command runs.
    Started { key: String, at: u64 },
    /// The tree is being ended.
    Exiting { key: String, at: u64 },
    /// The tree is gone, and the owner too. The entry stays.
    Ended { key: String, exit: Exit },
    /// Removes entries. The owner knows that the run ended, or nothing was started, or a reaper
    /// ended the run.
    Dropped { keys: Vec<String> },
    /// Changes the owner of each entry whose owner still is [`Claim::from`]. Written before the
    /// first signal.
    Claimed { claims: Vec<Claim>, by: Owner, at: u64 },
    /// Replaces the entry, if its owner still is the instance `by`.
    ///
    /// This gives a claim up (the entry is as before the claim), or continues the run with changed
    /// fields.
    Returned { entry: Box<Record>, by: String },
    /// Renews the lease of all entries of an instance.
    Lease { instance: String, until: u64 },
    /// Replaces [`Record::members`].
    Members { key: String, members: Vec<ProcessRef>, at: u64 },
    /// Replaces [`Record::labels`] and [`Record::metadata`].
    Updated {
        key: String,
        #[serde(default)]
        labels: BTreeMap<String, String>,
        #[serde(default)]
        metadata: Option<serde_json::Value>,
        at: u64,
    },
}

/// An entry, and the owner that the claiming process has read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub key: String,
    pub from: Option<String>,
}

/// The owner of runs: a supervisor in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub instance: String,
    pub process: ProcessRef,
    pub lease_until: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_keeps_its_cause_reason_status_and_number_of_survivors_in_the_registry() {
        let ended = Ended {
            named_reason: "ownership-escape".into(),
            limit_ms: 9,
            status: Some(ExitStatus::Signal(15)),
            unlisted: Unlisted { survivors: 2, ..Unlisted::default() },
            ..Ended::new(Ending::Cause(Cause::RootExit))
        };
        let exit = Exit::of(&ended, 7);
        let json = serde_json::to_string(&exit).unwrap();
        let expected = r#"{"atMs":7,"reason":"ownership-escape","ending":"root-exit","limitMs":9,"exitCode":null,"signal":15,"survivors":2}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<Exit>(&json).unwrap().ended(), ended);
    }

    #[test]
    fn an_ending_of_a_later_version_counts_as_an_exit_of_the_root() {
        let json =
            r#"{"atMs":7,"reason":"shutdown","ending":"else","exitCode":3,"signal":null,"survivors":0}"#;
        let ended = serde_json::from_str::<Exit>(json).unwrap().ended();
        assert_eq!((ended.ending, ended.status), (Ending::Cause(Cause::RootExit), Some(ExitStatus::Code(3))));
        assert_eq!(ended.reason().name(), "shutdown");
    }
}
