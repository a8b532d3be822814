//! The registry as its files: the checkpoint, the journal that is being made into one, and what was written since.
//!
//! What the lines come to is the product's own [`Table`]; what a bot knows better than the files is the product's own [`Own`].

use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::{Arc, LazyLock};

use spawn_owned::identity::ProcessRef;
use spawn_owned::registry::own::Own;
use spawn_owned::registry::{Claim, Containment, Exit, Keeper, Line, Owner, Record, State, Table};
use spawn_owned::run::Policy;

use crate::world::Who;

/// A process of this model, named as the product names one.
fn process(pid: i32, start: u64) -> ProcessRef {
    ProcessRef { pid, start, boot: "boot".into(), ns: 1 }
}

fn root() -> ProcessRef {
    process(4242, 30)
}

/// The only run's entry.
static KEY: LazyLock<String> = LazyLock::new(|| root().to_string());

fn key() -> String {
    KEY.clone()
}

/// The owner and whoever comes last have the same PID, as bots in a container have.
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

/// What the owner writes down before anything is started.
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
        ..Record::blank()
    }
}

/// A record that is part of a state. Only what can change makes a difference.
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

/// What can change of a record.
fn digest(record: &Record) -> (State, Option<&str>, Option<u64>, bool) {
    let Record { state, owner_instance_id, lease_expires_at_ms, exit, .. } = record;
    (*state, owner_instance_id.as_deref(), *lease_expires_at_ms, exit.is_some())
}

#[derive(Debug, Clone, Default)]
pub struct Registry {
    file: Arc<Table>,
    /// The journal that whoever has the lock has moved aside, or has left so when it died.
    old: Vec<Arc<Line>>,
    journal: Vec<Arc<Line>>,
    /// What all of them together say, so that it need not be worked out for every look.
    sum: Arc<Table>,
    lock: Option<Who>,
    /// If not, every line is in the file at once.
    has_checkpoints: bool,
}

impl Registry {
    pub fn new(has_checkpoints: bool) -> Self {
        Self { has_checkpoints, ..Self::default() }
    }

    /// Everything there is to know, as anybody reads it.
    pub fn read(&self) -> &Table {
        &self.sum
    }

    pub fn entry(&self) -> Option<Seen> {
        self.read().get(&KEY).map(Seen::new)
    }

    fn append(&mut self, line: Line) {
        Arc::make_mut(&mut self.sum).apply(line.clone());
        if self.has_checkpoints {
            self.journal.push(Arc::new(line));
        } else {
            self.file = self.sum.clone();
        }
    }

    pub fn intent(&mut self, record: Record) {
        self.append(Line::Intent { entry: Box::new(record) });
    }

    pub fn dropped(&mut self) {
        self.append(Line::Dropped { keys: vec![key()] });
    }

    /// By the keeper.
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

    /// Whether there is anything to be made a checkpoint of, and nobody at it.
    pub fn is_due(&self) -> bool {
        self.lock.is_none() && !(self.journal.is_empty() && self.old.is_empty())
    }

    pub fn is_locked_by(&self, who: Who) -> bool {
        self.lock == Some(who)
    }

    /// Takes the lock, finishes what somebody may have left half done, and moves the journal aside.
    pub fn begin_checkpoint(&mut self, memory: &mut Memory) {
        self.lock = Some(memory.who);
        memory.own_mut().begin_checkpoint();
        let left = mem::replace(&mut self.old, mem::take(&mut self.journal));
        let file = Arc::make_mut(&mut self.file);
        left.into_iter().for_each(|line| file.apply(Line::clone(&line)));
    }

    /// Replaces the file. Lines that have come since are in the journal, and count after what is settled here.
    pub fn end_checkpoint(&mut self, memory: &mut Memory) {
        let file = Arc::make_mut(&mut self.file);
        mem::take(&mut self.old).into_iter().for_each(|line| file.apply(Line::clone(&line)));
        memory.own_mut().settle(file);
        self.sum = self.file.clone();
        let sum = Arc::make_mut(&mut self.sum);
        self.journal.iter().for_each(|line| sum.apply(Line::clone(line)));
        self.lock = None;
    }

    /// Whoever dies lets go of the lock.
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
        | Line::Members { .. } => {}
    }
}

/// What a bot knows of its own entries. What [`Own`] does not tell of itself is noted beside it.
#[derive(Debug, Clone)]
pub struct Memory {
    who: Who,
    own: Arc<Own>,
    has_instance: bool,
    is_claiming: bool,
    is_adopted: bool,
}

impl Memory {
    pub fn new(who: Who) -> Self {
        let own = Arc::new(Own::new(bot(who)));
        Self { who, own, has_instance: false, is_claiming: false, is_adopted: false }
    }

    fn own_mut(&mut self) -> &mut Own {
        Arc::make_mut(&mut self.own)
    }

    pub fn has_entry(&self) -> bool {
        self.own.live.contains(&KEY)
    }

    /// How long the entry's lease is, if it is ours.
    pub fn lease(&self) -> Option<u64> {
        self.own.live.get(&KEY)?.lease_expires_at_ms
    }

    pub fn is_loose(&self) -> bool {
        self.own.is_loose(&KEY)
    }

    /// The registry as this bot sees it.
    pub fn load(&self, registry: &Registry) -> Option<Seen> {
        // Who has had nothing to do with it knows nothing better.
        if !self.has_instance {
            return registry.entry();
        }
        let mut table = registry.read().clone();
        self.own.correct(&mut table);
        table.get(&KEY).map(Seen::new)
    }

    pub fn remember(&mut self, record: Record) {
        self.has_instance = true;
        self.own_mut().remember(record);
    }

    pub fn started(&mut self, registry: &mut Registry) {
        self.note(registry, Line::Started { key: key(), at: 0 });
    }

    pub fn exiting(&mut self, registry: &mut Registry) {
        self.note(registry, Line::Exiting { key: key(), at: 0 });
    }

    pub fn renew(&mut self, registry: &mut Registry, until: u64) {
        self.note(registry, Line::Lease { instance: instance(self.who), until });
    }

    /// A change of an entry of ours: in memory first.
    fn note(&mut self, registry: &mut Registry, line: Line) {
        self.own_mut().live.apply(line.clone());
        registry.append(line);
    }

    pub fn forget(&mut self) {
        self.is_adopted = false;
        self.own_mut().forget(&key());
    }

    /// False if somebody here is at it already.
    pub fn claim(&mut self, from: Option<String>) -> bool {
        self.has_instance = true;
        let (instance, claim) = (instance(self.who), Claim { key: key(), from });
        let is_first = self.own_mut().claim(&claim, &instance);
        self.is_claiming |= is_first;
        is_first
    }

    /// As if the claim had been remembered before, and forgotten.
    pub fn know_instance(&mut self) {
        self.claim(None);
        self.unclaim();
    }

    pub fn unclaim(&mut self) {
        self.is_claiming = false;
        self.own_mut().unclaim(&[key()]);
    }

    pub fn adopt(&mut self, now: Record, former: &Seen) {
        (self.is_claiming, self.is_adopted) = (false, true);
        self.own_mut().adopt(now, Record::clone(&former.0));
    }

    pub fn take_adopted(&mut self) {
        self.is_adopted = false;
        self.own_mut().take_adopted(&key());
    }

    pub fn give_back(&mut self) {
        (self.is_claiming, self.is_adopted) = (false, false);
        self.own_mut().forget(&key());
        self.own_mut().loosen(&[key()]);
    }
}

impl Hash for Memory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_entry(&self.own.live, state);
        (self.own.marks(&KEY), self.has_instance, self.is_claiming, self.is_adopted).hash(state);
    }
}
