//! A registry entry together with its JSON text.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::record::Record;

/// A record that is encoded at most once until it changes, because a file may have thousands of
/// entries of which one changes.
#[derive(Debug)]
pub struct CachedRecord {
    record: Record,
    json: OnceLock<Option<Box<RawValue>>>,
}

impl CachedRecord {
    pub fn new(record: Record) -> Self {
        Self { record, json: OnceLock::new() }
    }

    /// The JSON text of the record. `None` if encoding fails, which no record can cause.
    pub fn json(&self) -> Option<&RawValue> {
        self.json.get_or_init(|| to_raw_value(&self.record).ok()).as_deref()
    }

    /// Access to change the record.
    ///
    /// Copies the record first if it is shared, and discards the JSON text.
    pub fn change(entry: &mut Arc<Self>) -> &mut Record {
        let entry = Arc::make_mut(entry);
        entry.json = OnceLock::new();
        &mut entry.record
    }

    pub fn into_record(entry: Arc<Self>) -> Record {
        Arc::unwrap_or_clone(entry).record
    }
}

impl Deref for CachedRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

/// Copies the record without its JSON text, because a clone is made to be changed.
impl Clone for CachedRecord {
    fn clone(&self) -> Self {
        Self::new(self.record.clone())
    }
}

impl PartialEq for CachedRecord {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl Eq for CachedRecord {}

impl Serialize for CachedRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.json() {
            Some(json) => json.serialize(serializer),
            None => self.record.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::import::tests::ours;
    use super::*;

    #[test]
    fn a_changed_record_is_encoded_again() {
        let mut entry = Arc::new(CachedRecord::new(ours(4242)));
        let before = entry.json().unwrap().get().to_owned();
        assert_eq!(before, serde_json::to_string(&ours(4242)).unwrap());
        for others in [None, Some(entry.clone())] {
            CachedRecord::change(&mut entry).run_id.push('!');
            assert_eq!(entry.json().unwrap().get(), serde_json::to_string(&**entry).unwrap());
            assert!(others.is_none_or(|other| other.json().unwrap().get() != entry.json().unwrap().get()));
        }
        assert_ne!(entry.json().unwrap().get(), before);
    }

    #[test]
    fn into_record_leaves_shared_copies_unchanged() {
        let alone = Arc::new(CachedRecord::new(ours(4242)));
        let shared = alone.clone();
        assert_eq!(CachedRecord::into_record(alone), ours(4242));
        assert_eq!(CachedRecord::into_record(shared), ours(4242));
    }

    /// JavaScript gets the same JSON as the file has, whether or not an entry was encoded before.
    #[test]
    fn a_list_of_cached_records_is_encoded_like_a_list_of_records() {
        let (written, fresh) = (Arc::new(CachedRecord::new(ours(1))), Arc::new(CachedRecord::new(ours(2))));
        assert!(written.json().is_some());
        let list = serde_json::to_string(&[written, fresh]).unwrap();
        assert_eq!(list, serde_json::to_string(&[ours(1), ours(2)]).unwrap());
    }
}
