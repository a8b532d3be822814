//! The registry as its files: the checkpoint, the journal that is being merged into it, and the
//! journal since then.
//!
//! The meaning of the lines is the product's own [`Table`]. What a bot knows better than the files
//! is the product's own [`LocalEntries`].

use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::{Arc, LazyLock};

use spawn_owned::identity::ProcessRef;
use spawn_owned::registry::claim_state::ClaimState;
use spawn_owned::registry::local_entries::LocalEntries;
use spawn_owned::registry::{Claim, Containment, Exit, Keeper, Line, Owner, Record, State, Table};
use spawn_owned::run::Policy;

use crate::world::Who;

/// A process of this model, with the product's type.
fn process(pid: i32, start: u64) -> ProcessRef {
    ProcessRef { pid, start, boot: "boot".into(), ns: 1 }
}

fn root() -> ProcessRef {
    process(4242, 30)
}

/// The key of the only run's entry.
static KEY: LazyLock<String> = LazyLock::new(|| root().to_string());

fn key() -> String {
    KEY.clone()
}

/// The owner and the last bot have the same PID, as bots in a container do.
fn bot(who: Who) -> ProcessRef {
    match who {
        Who::Owner => process(700, 10),
        Who::Other(index) => process(800 + i32::from(index), 50),
        Who::Last => process(700, 90),
    }
}

fn instance(who: Who) -> String {
    format!("{who:?}")
}

fn owner(who: Who, lease_until: u64) -> Owner {
    Owner { instance: instance(who), process: bot(who), lease_until }
}

/// The entry that the owner writes before it starts anything.
pub fn intent(on_owner_exit: Policy, lease_until: u64) -> Record {
    Record {
        pid: root().pid,
        pgid: Some(root().pid),
        run_id: "run".into(),
        state: State::Starting,
        start_token: Some(root()),
        bot_pid: bot(Who::Owner).pid,
        bot_start_token: Some(bot(Who::Owner)),
        owner_instance_id: Some(instance(Who::Owner)),
        lease_expires_at_ms: Some(lease_until),
        containment: Containment::Keeper,
        keeper: Some(Keeper { start_token: process(4241, 20), address: "address".into() }),
        on_owner_exit,
        ..Record::empty()
    }
}

/// A record that is part of a state. Only the fields that can change count.
#[derive(Debug, Clone)]
pub struct Seen(pub Arc<Record>);

impl Seen {
    fn new(record: &Record) -> Self {
        Self(Arc::new(record.clone()))
    }

    pub fn owner(&self) -> Option<Who> {
        let token = self.0.bot_start_token.as_ref()?;
        Who::ALL.into_iter().find(|who| bot(*who) == *token)
    }
}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        digest(&self.0).hash(state);
    }
}

fn hash_entry<H: Hasher>(table: &Table, state: &mut H) {
    table.get(&KEY).map(digest).hash(state);
}

/// The fields of a record that can change.
fn digest(record: &Record) -> (State, Option<&str>, Option<u64>, bool) {
    let Record { state, owner_instance_id, lease_expires_at_ms, exit, .. } = record;
    (*state, owner_instance_id.as_deref(), *lease_expires_at_ms, exit.is_some())
}

#[derive(Debug, Clone, Default)]
pub struct Registry {
    file: Arc<Table>,
    /// The journal that the holder of the lock has moved aside. A holder that died leaves it there.
    old: Vec<Arc<Line>>,
    journal: Vec<Arc<Line>>,
    /// The result of all three, cached for reads.
    combined: Arc<Table>,
    lock: Option<Who>,
    /// If false, every line is in the file immediately.
    has_checkpoints: bool,
}

impl Registry {
    pub fn new(has_checkpoints: bool) -> Self {
        Self { has_checkpoints, ..Self::default() }
    }

    /// The whole registry, as any bot reads it.
    pub fn read(&self) -> &Table {
        &self.combined
    }

    pub fn entry(&self) -> Option<Seen> {
        self.read().get(&KEY).map(Seen::new)
    }

    fn append(&mut self, line: Line) {
        Arc::make_mut(&mut self.combined).apply(line.clone());
        if self.has_checkpoints {
            self.journal.push(Arc::new(line));
        } else {
            self.file = self.combined.clone();
        }
    }

    pub fn intent(&mut self, record: Record) {
        self.append(Line::Intent { entry: Box::new(record) });
    }

    pub fn dropped(&mut self) {
        self.append(Line::Dropped { keys: vec![key()] });
    }

    /// Written by the keeper.
    pub fn ended(&mut self) {
        let exit = Exit {
            at_ms: 0,
            reason: "owner-exit".into(),
            ending: "owner-exit".into(),
            limit_ms: 0,
            exit_code: None,
            signal: Some(15),
            survivors: 0,
        };
        self.append(Line::Ended { key: key(), exit });
    }

    pub fn claimed(&mut self, from: Option<String>, by: Who, lease_until: u64) {
        let claims = vec![Claim { key: key(), from }];
        self.append(Line::Claimed { claims, by: owner(by, lease_until), at: 0 });
    }

    pub fn returned(&mut self, former: &Seen, by: Who) {
        self.append(Line::Returned { entry: Box::new(Record::clone(&former.0)), by: instance(by) });
    }

    /// Whether there are lines for a checkpoint, and no bot makes one.
    pub fn is_due(&self) -> bool {
        self.lock.is_none() && !(self.journal.is_empty() && self.old.is_empty())
    }

    pub fn is_locked_by(&self, who: Who) -> bool {
        self.lock == Some(who)
    }

    /// Takes the lock, finishes a checkpoint that another bot may have left incomplete, and moves
    /// the journal aside.
    pub fn begin_checkpoint(&mut self, memory: &mut Memory) {
        self.lock = Some(memory.who);
        memory.local_mut().begin_checkpoint();
        let unfinished = mem::replace(&mut self.old, mem::take(&mut self.journal));
        let file = Arc::make_mut(&mut self.file);
        unfinished.into_iter().for_each(|line| file.apply(Line::clone(&line)));
    }

    /// Replaces the file. Later lines are in the journal, and apply after the content of the file.
    pub fn end_checkpoint(&mut self, memory: &mut Memory) {
        let file = Arc::make_mut(&mut self.file);
        mem::take(&mut self.old).into_iter().for_each(|line| file.apply(Line::clone(&line)));
        memory.local_mut().settle(file);
        self.combined = self.file.clone();
        let combined = Arc::make_mut(&mut self.combined);
        self.journal.iter().for_each(|line| combined.apply(Line::clone(line)));
        self.lock = None;
    }

    /// The kernel releases the lock of a dead bot.
    pub fn unlock(&mut self, who: Who) {
        if self.lock == Some(who) {
            self.lock = None;
        }
    }
}

impl Hash for Registry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_entry(&self.file, state);
        for lines in [&self.old, &self.journal] {
            lines.len().hash(state);
            lines.iter().for_each(|line| hash_line(line, state));
        }
        self.lock.hash(state);
    }
}

fn hash_line<H: Hasher>(line: &Line, state: &mut H) {
    mem::discriminant(line).hash(state);
    match line {
        Line::Intent { entry } => digest(entry).hash(state),
        Line::Returned { entry, by } => (digest(entry), by).hash(state),
        Line::Claimed { claims, by, .. } => {
            claims.iter().for_each(|claim| claim.from.hash(state));
            (&by.instance, by.lease_until).hash(state);
        }
        Line::Lease { instance, until } => (instance, until).hash(state),
        Line::Started { .. }
        | Line::Exiting { .. }
        | Line::Ended { .. }
        | Line::Dropped { .. }
        | Line::Members { .. }
        | Line::Updated { .. } => {}
    }
}

/// What a bot knows of its own entries.
#[derive(Debug, Clone)]
pub struct Memory {
    who: Who,
    local: Arc<LocalEntries>,
    has_instance: bool,
}

impl Memory {
    pub fn new(who: Who) -> Self {
        Self { who, local: Arc::new(LocalEntries::new(bot(who))), has_instance: false }
    }

    fn local_mut(&mut self) -> &mut LocalEntries {
        Arc::make_mut(&mut self.local)
    }

    pub fn has_entry(&self) -> bool {
        self.local.live.contains(&KEY)
    }

    /// The end of the entry's lease, if this bot owns it.
    pub fn lease(&self) -> Option<u64> {
        self.local.live.get(&KEY)?.lease_expires_at_ms
    }

    pub fn is_unsettled(&self) -> bool {
        self.local.is_unsettled(&KEY)
    }

    /// The registry as this bot sees it.
    pub fn load(&self, registry: &Registry) -> Option<Seen> {
        // A bot without an instance knows nothing better than the files.
        if !self.has_instance {
            return registry.entry();
        }
        let mut table = registry.read().clone();
        self.local.correct(&mut table);
        table.get(&KEY).map(Seen::new)
    }

    pub fn remember(&mut self, record: Record) {
        self.has_instance = true;
        self.local_mut().remember(record);
    }

    pub fn started(&mut self, registry: &mut Registry) {
        self.write(registry, Line::Started { key: key(), at: 0 });
    }

    pub fn exiting(&mut self, registry: &mut Registry) {
        self.write(registry, Line::Exiting { key: key(), at: 0 });
    }

    pub fn renew(&mut self, registry: &mut Registry, until: u64) {
        self.write(registry, Line::Lease { instance: instance(self.who), until });
    }

    /// Changes an entry of this bot: in memory first, then in the registry.
    fn write(&mut self, registry: &mut Registry, line: Line) {
        self.local_mut().live.apply(line.clone());
        registry.append(line);
    }

    pub fn forget(&mut self) {
        self.local_mut().forget(&key());
    }

    /// False if this bot is already claiming the entry.
    pub fn claim(&mut self, from: Option<String>) -> bool {
        self.has_instance = true;
        let (instance, claim) = (instance(self.who), Claim { key: key(), from });
        self.local_mut().claim(&claim, &instance)
    }

    /// Creates the instance without a claim: claims, and undoes that.
    pub fn know_instance(&mut self) {
        self.claim(None);
        self.release();
    }

    pub fn release(&mut self) {
        self.local_mut().release(&[key()]);
    }

    pub fn adopt(&mut self, now: Record, former: &Seen) {
        self.local_mut().adopt(now, Record::clone(&former.0));
    }

    pub fn lose_claim(&mut self) {
        self.local_mut().lose_claim(&key());
    }

    pub fn take_adopted(&mut self) {
        self.local_mut().take_adopted(&key());
    }

    pub fn give_back(&mut self) {
        self.local_mut().give_back(&key());
    }
}

impl Hash for Memory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_entry(&self.local.live, state);
        hash_claim(&self.local, state);
        self.has_instance.hash(state);
    }
}

/// Of a time, only whether the next checkpoint can judge it counts.
fn hash_claim<H: Hasher>(local: &LocalEntries, state: &mut H) {
    hash_claim_state(local.claim_state(&KEY), local, state);
}

fn hash_claim_state<H: Hasher>(claim: &ClaimState, local: &LocalEntries, state: &mut H) {
    mem::discriminant(claim).hash(state);
    let pending = match claim {
        ClaimState::Unclaimed => return,
        ClaimState::Claiming { pending, before } => {
            hash_claim_state(before, local, state);
            pending
        }
        ClaimState::Adopted { pending, .. } | ClaimState::Own { pending } => pending,
        ClaimState::Unsettled { since, is_with_other } => {
            return (local.can_judge(*since), is_with_other).hash(state);
        }
        ClaimState::Abandoned { was_seen } => return was_seen.hash(state),
    };
    pending.as_ref().map(|pending| local.can_judge(pending.since)).hash(state);
}
