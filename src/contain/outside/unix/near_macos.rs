//! A scan for given trees. macOS lists all processes with group and parent in one system call, so a
//! smaller scan would save nothing.

use std::io;

use super::Target;
use super::claim::Known;
use super::scan::Scan;
use crate::identity::ProcessRef;

impl Scan {
    /// Scans all processes. The environment of processes older than the target's root is not read.
    pub(super) fn near(target: &Target, _known: &Known) -> io::Result<Self> {
        Self::take_since(if target.spawned { target.root.start } else { u64::MAX })
    }

    /// Scans all processes, without their cookies.
    pub fn below_each<'a>(
        _processes: impl IntoIterator<Item = &'a ProcessRef>,
        _groups: impl IntoIterator<Item = i32>,
    ) -> io::Result<Self> {
        Self::take_since(u64::MAX)
    }
}
