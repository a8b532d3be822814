//! An entry together with what it looks like in the file.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::record::Record;

/// A record, encoded at most once for as long as it does not change: a file may have thousands of which one does.
#[derive(Debug)]
pub struct Kept {
    record: Record,
    json: OnceLock<Option<Box<RawValue>>>,
}

impl Kept {
    pub fn new(record: Record) -> Self {
        Self { record, json: OnceLock::new() }
    }

    /// As it is written. `None` if it cannot be; but there is nothing in it that JSON cannot hold.
    pub fn json(&self) -> Option<&RawValue> {
        self.json.get_or_init(|| to_raw_value(&self.record).ok()).as_deref()
    }

    /// To be changed: a copy if others have it too, and in any case to be encoded anew.
    pub fn change(entry: &mut Arc<Self>) -> &mut Record {
        let entry = Arc::make_mut(entry);
        entry.json = OnceLock::new();
        &mut entry.record
    }

    pub fn into_record(entry: Arc<Self>) -> Record {
        Arc::unwrap_or_clone(entry).record
    }
}

impl Deref for Kept {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

/// To be changed, so not with what it looks like now.
impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::new(self.record.clone())
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl Eq for Kept {}

impl Serialize for Kept {
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
    fn what_has_changed_is_not_written_as_it_was() {
        let mut entry = Arc::new(Kept::new(ours(4242)));
        let before = entry.json().unwrap().get().to_owned();
        assert_eq!(before, serde_json::to_string(&ours(4242)).unwrap());
        for others in [None, Some(entry.clone())] {
            Kept::change(&mut entry).run_id.push('!');
            assert_eq!(entry.json().unwrap().get(), serde_json::to_string(&**entry).unwrap());
            assert!(others.is_none_or(|other| other.json().unwrap().get() != entry.json().unwrap().get()));
        }
        assert_ne!(entry.json().unwrap().get(), before);
    }

    #[test]
    fn who_takes_an_entry_out_leaves_those_of_others_as_they_are() {
        let alone = Arc::new(Kept::new(ours(4242)));
        let shared = alone.clone();
        assert_eq!(Kept::into_record(alone), ours(4242));
        assert_eq!(Kept::into_record(shared), ours(4242));
    }

    /// A list for JavaScript is as the file has it, whether or not an entry was written before.
    #[test]
    fn a_list_of_them_is_a_list_of_records() {
        let (written, fresh) = (Arc::new(Kept::new(ours(1))), Arc::new(Kept::new(ours(2))));
        assert!(written.json().is_some());
        let list = serde_json::to_string(&[written, fresh]).unwrap();
        assert_eq!(list, serde_json::to_string(&[ours(1), ours(2)]).unwrap());
    }
}
