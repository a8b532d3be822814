//! An index that finds entries by fields that never change, without iterating over the others.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::record::Record;
use super::table::Table;

/// Selects entries: every given field must match. An empty filter matches every entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filter {
    pub run_id: Option<String>,
    pub session_id: Option<String>,
    pub scope_key: Option<String>,
}

impl Filter {
    pub fn run(run_id: &str) -> Self {
        Self { run_id: Some(run_id.to_owned()), ..Self::default() }
    }

    pub fn scope(scope: &str) -> Self {
        Self { scope_key: Some(scope.to_owned()), ..Self::default() }
    }

    pub fn matches(&self, record: &Record) -> bool {
        let same = |wanted: &Option<String>, has: Option<&String>| wanted.is_none() || wanted.as_ref() == has;
        same(&self.run_id, Some(&record.run_id))
            && same(&self.session_id, record.session_id.as_ref())
            && same(&self.scope_key, record.scope_key.as_ref())
    }
}

/// The keys of a table's entries, by run id, session and scope.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Index {
    runs: Keys,
    sessions: Keys,
    scopes: Keys,
}

type Keys = HashMap<String, HashSet<String>>;

impl Index {
    pub fn of(table: &Table) -> Self {
        let mut index = Self::default();
        for (key, record) in table.iter() {
            index.add(key, record);
        }
        index
    }

    pub fn add(&mut self, key: &str, record: &Record) {
        for (keys, value) in self.lists(record) {
            keys.entry(value.to_owned()).or_default().insert(key.to_owned());
        }
    }

    pub fn remove(&mut self, key: &str, record: &Record) {
        for (keys, value) in self.lists(record) {
            if let Some(list) = keys.get_mut(value) {
                list.remove(key);
                if list.is_empty() {
                    keys.remove(value);
                }
            }
        }
    }

    /// Keys that include all entries which the filter matches. `None`: any entry may match.
    pub fn candidates(&self, filter: &Filter) -> Option<impl Iterator<Item = &String>> {
        let (keys, value) = match filter {
            Filter { run_id: Some(run_id), .. } => (&self.runs, run_id),
            Filter { scope_key: Some(scope), .. } => (&self.scopes, scope),
            Filter { session_id: Some(session), .. } => (&self.sessions, session),
            _ => return None,
        };
        Some(keys.get(value).into_iter().flatten())
    }

    fn lists<'a>(&'a mut self, record: &'a Record) -> impl Iterator<Item = (&'a mut Keys, &'a str)> {
        let lists = [
            (&mut self.runs, Some(record.run_id.as_str())),
            (&mut self.sessions, record.session_id.as_deref()),
            (&mut self.scopes, record.scope_key.as_deref()),
        ];
        lists.into_iter().filter_map(|(keys, value)| Some((keys, value?)))
    }
}
