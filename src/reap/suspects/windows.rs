//! What a process runs: as it was started. Where it is at work the system tells nobody else, so it is suspected for its descent only.

use super::{Details, names};
use crate::identity::Pin;
use crate::identity::stat::Stat;

/// `None` for what has ended, and for what must not be looked at.
pub fn details(stat: &Stat) -> Option<Details> {
    let pin = Pin::open(stat.pid).ok()?;
    if pin.start() != Ok(stat.start) || pin.has_ended() {
        return None;
    }
    let words = pin.command_line().map(|line| names::split(&line)).filter(|words| !words.is_empty());
    // Its program's name is known in any case.
    let words = words.unwrap_or_else(|| vec![stat.comm.clone()]);
    Some(Details { words, directory: None })
}
