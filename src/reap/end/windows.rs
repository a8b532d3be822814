//! A bot that does not do its part as the keeper of its runs. It is nobody's to be touched, whatever a file says.

use std::time::Duration;

use crate::errno::Errno;
use crate::identity::ProcessRef;

pub fn wake(_bot: &ProcessRef, _root: &ProcessRef) {}

pub fn overcome(_bot: &ProcessRef, _root: &ProcessRef, _errno: Errno, _grace: Duration) -> bool {
    false
}
