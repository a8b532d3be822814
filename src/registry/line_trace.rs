//! Traces the lines that this process writes to the journal.

use super::error::RegistryError;
use super::record::{Line, Record};
use crate::trace::{self, trace};

/// Traces lines, and whether they were written.
pub fn trace_lines(lines: &[Line], written: &Result<(), RegistryError>) {
    if !trace::is_on() {
        return;
    }
    let failure = written.as_ref().err().map(|error| format!(" failed: {error}")).unwrap_or_default();
    for line in lines {
        trace_line(line, &failure);
    }
}

fn trace_line(line: &Line, failure: &str) {
    let with_entry = |name: &str, entry: &Record| {
        let key = entry.key();
        trace::add_key(&key, &entry.run_id);
        trace!(run: &entry.run_id, "registry: {name} {key}{failure}");
    };
    match line {
        Line::Intent { entry } => with_entry("intent", entry),
        Line::Returned { entry, .. } => with_entry("returned", entry),
        Line::Started { key, .. } => trace!(key: key, "registry: started{failure}"),
        Line::Exiting { key, .. } => trace!(key: key, "registry: exiting{failure}"),
        Line::Ended { key, exit } => trace!(key: key, "registry: ended ({}){failure}", exit.reason),
        Line::Dropped { keys } => {
            for key in keys {
                trace!(key: key, "registry: dropped{failure}");
                trace::remove_key(key);
            }
        }
        Line::Claimed { claims, by, .. } => {
            for claim in claims {
                let from = claim.from.as_deref().unwrap_or("no owner");
                trace!(key: &claim.key, "registry: claimed from {from} by {}{failure}", by.instance);
            }
        }
        Line::Lease { instance, .. } => trace!("registry: lease of {instance}{failure}"),
        Line::Updated { key, .. } => trace!(key: key, "registry: updated{failure}"),
        Line::Members { key, members, .. } => {
            trace!(key: key, "registry: members ({}){failure}", members.len());
        }
    }
}
