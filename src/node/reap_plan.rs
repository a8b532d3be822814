//! The plan of a reaper, as JavaScript gets it and sends it back.

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize};

use crate::reap::{Decided, Done, Planned, Verdict};
use crate::registry::{CachedRecord, UnreadableContent};

/// A plan as JavaScript gets it: all records, all different decisions, and for each record the
/// index of its decision.
pub(super) struct Plan {
    pub(super) planned: Arc<Vec<Planned>>,
    pub(super) flaw: Option<UnreadableContent>,
}

impl Serialize for Plan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut decisions: Vec<Decided> = Vec::new();
        let mut index = |decided: &Decided| {
            decisions.iter().position(|known| known == decided).unwrap_or_else(|| {
                decisions.push(*decided);
                decisions.len() - 1
            })
        };
        let of: Vec<usize> = self.planned.iter().map(|planned| index(&planned.decided)).collect();
        let records: Vec<&CachedRecord> = self.planned.iter().map(|planned| &*planned.record).collect();
        let mut plan = serializer.serialize_struct("Plan", 4)?;
        plan.serialize_field("decisions", &decisions)?;
        plan.serialize_field("of", &of)?;
        plan.serialize_field("records", &records)?;
        plan.serialize_field("flaw", &self.flaw)?;
        plan.end()
    }
}

/// The result of a plan.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct PlanResult {
    pub(super) done: Vec<Done>,
    /// Dropping thousands of records takes time, so they drop after the result is sent.
    #[serde(skip)]
    pub(super) _planned: Vec<Planned>,
}

/// The request to carry a plan out, with the changes of a policy.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanRequest {
    pub(super) id: u32,
    /// Adopt every run that the plan would end.
    pub(super) adopt: bool,
    /// Indices of entries, and what the policy does with their runs instead.
    pub(super) changes: Vec<(usize, Verdict)>,
    pub(super) grace_ms: Option<u64>,
}
