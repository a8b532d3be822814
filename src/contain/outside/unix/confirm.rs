//! Reads each claimed process a second time, and keeps the claims that this read proves.

use std::collections::HashMap;
use std::io;

use nix::errno::Errno;

use super::Target;
use super::claim::{Claim, Proof};
use crate::contain::cgroup::Cgroup;
use crate::identity::stat::Stat;
use crate::identity::{ProcessRef, read_stat};

/// Returns the claims that a second read confirms. Fails only if that read is not possible.
///
/// The scan read the processes one after the other. A parent or witness may have died in between,
/// and its PID may belong to another process now. So for each claim: open a handle to the process,
/// read its link again through the handle, and only *then* read the process it links to, which was
/// confirmed before. If that process still has the same start token, it existed when the link was
/// read, so the link means it. Once proven, an identity stays proven.
pub(super) fn confirm<'a>(
    target: &Target,
    claims: &[Claim<'a>],
    cgroup: Option<&Cgroup>,
) -> io::Result<Vec<&'a Stat>> {
    let mut confirmed: HashMap<i32, &Stat> = HashMap::new();
    let mut list = Vec::new();
    for claim in claims {
        match holds(target, claim, &confirmed, cgroup) {
            Ok(true) => {
                confirmed.insert(claim.stat.pid, claim.stat);
                list.push(claim.stat);
            }
            Ok(false) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(list)
}

fn holds(
    target: &Target,
    claim: &Claim,
    confirmed: &HashMap<i32, &Stat>,
    cgroup: Option<&Cgroup>,
) -> Result<bool, Errno> {
    let handle = ProcessRef::known(claim.stat.pid, claim.stat.start).open_handle()?;
    let again = |pid: i32| {
        let now = read_stat(pid).ok()?;
        (confirmed.get(&pid)?.start == now.start).then_some(now)
    };
    Ok(match claim.proof {
        Proof::Itself => true,
        // The handle is valid after the read, so the read was about this process.
        Proof::InCgroup => cgroup.is_some_and(|cgroup| cgroup.has(claim.stat.pid)) && handle.stat().is_ok(),
        Proof::Group { witness } => {
            let is_witness = |stat: Stat| stat.pid == target.root.pid || target.has_in_group(&stat);
            target.has_in_group(&handle.stat()?) && again(witness).is_some_and(is_witness)
        }
        Proof::ChildOf(parent) => handle.stat()?.ppid == parent && again(parent).is_some(),
        // The child names its parent, and the parent exists after that. So it is the process that
        // was named.
        Proof::HelperAbove(child) => {
            again(child).is_some_and(|child| child.ppid == claim.stat.pid) && handle.stat().is_ok()
        }
    })
}
