//! On Windows the bot is the keeper of its runs. An unresponsive bot is never signalled, whatever a
//! registry file says.

use std::time::Duration;

use crate::errno::Errno;
use crate::identity::ProcessRef;

pub fn wake(_bot: &ProcessRef, _root: &ProcessRef) {}

pub fn force_stop(_bot: &ProcessRef, _root: &ProcessRef, _errno: Errno, _grace: Duration) -> bool {
    false
}
