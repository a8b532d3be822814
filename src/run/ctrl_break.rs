//! Which members of a run got Ctrl+Break, and whether to send it again. Pure: no clock, no I/O.
//!
//! Windows sends Ctrl+Break to all processes of a group that are attached to the console at that
//! moment, never to a single one. A process that is created during the grace, or that has not
//! attached to its console yet, does not get it.
//!
//! A second Ctrl+Break would also reach the processes that clean up because of the first one. Many
//! programs take a second one as a request to exit immediately. So it is sent again only when no
//! process that got it is left. Then it reaches only new processes, and each process gets it once.

/// How long a process may take to attach to its console after its creation. A process without a
/// console after that cannot get Ctrl+Break.
pub const ATTACH_LIMIT_MS: u64 = 500;

/// What to do about the live members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: no member is left, or some have got it and may be cleaning up.
    Wait,
    /// Check again soon: no member has got it, and none is attached to the console yet.
    WaitForConsole,
    /// Send it, and replace this value by [`CtrlBreak::sent`].
    Send,
    /// Kill all: no member can get it, so do not wait for any.
    Kill,
}

/// The members that got Ctrl+Break. `P` identifies a process uniquely.
#[derive(Debug)]
pub struct CtrlBreak<P> {
    got_it: Vec<P>,
    /// Since when all live members are processes that have not got it.
    only_new_since: Option<u64>,
}

impl<P: PartialEq> CtrlBreak<P> {
    /// The state after sending it. `at_console`: the members that were attached to the console
    /// right afterwards.
    ///
    /// A member that attached just then may have missed it. It counts as if it had got it, because
    /// getting it twice is worse than not at all.
    pub fn sent(at_console: Vec<P>) -> Self {
        Self { got_it: at_console, only_new_since: None }
    }

    /// What to do now. `members`: all live members, each with whether it is attached to the
    /// console.
    pub fn next(&mut self, members: &[(P, bool)], now: u64) -> Next {
        if members.is_empty() || members.iter().any(|(member, _)| self.got_it.contains(member)) {
            self.only_new_since = None;
            return Next::Wait;
        }
        if members.iter().any(|(_, is_at_console)| *is_at_console) {
            return Next::Send;
        }
        let since = *self.only_new_since.get_or_insert(now);
        if now.saturating_sub(since) < ATTACH_LIMIT_MS { Next::WaitForConsole } else { Next::Kill }
    }

    /// Whether to call [`CtrlBreak::next`] again soon, even without an event.
    pub fn awaits_console(&self) -> bool {
        self.only_new_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_got_ctrl_break_do_not_get_it_again_when_others_are_created() {
        let mut sent = CtrlBreak::sent(vec![1, 2]);
        for members in [vec![(1, true), (2, true)], vec![(2, true), (3, true)], vec![(2, false), (3, false)]]
        {
            assert_eq!(sent.next(&members, 0), Next::Wait, "{members:?}");
        }
    }

    #[test]
    fn a_new_member_gets_ctrl_break_when_no_member_that_got_it_is_left() {
        let mut sent = CtrlBreak::sent(vec![1]);
        assert_eq!(sent.next(&[(1, true), (2, true)], 0), Next::Wait);
        assert_eq!(sent.next(&[(2, true)], 1), Next::Send);
        sent = CtrlBreak::sent(vec![2]);
        assert_eq!(sent.next(&[(2, true)], 2), Next::Wait, "once");
    }

    #[test]
    fn a_new_member_has_time_to_attach_to_the_console() {
        let mut sent = CtrlBreak::sent(vec![1]);
        assert_eq!(sent.next(&[(2, false)], 100), Next::WaitForConsole);
        assert!(sent.awaits_console());
        assert_eq!(sent.next(&[(2, false)], 99 + ATTACH_LIMIT_MS), Next::WaitForConsole);
        assert_eq!(sent.next(&[(2, true)], 99 + ATTACH_LIMIT_MS), Next::Send);
    }

    #[test]
    fn a_member_that_never_attaches_is_killed() {
        let mut sent = CtrlBreak::sent(vec![1]);
        assert_eq!(sent.next(&[(2, false)], 100), Next::WaitForConsole);
        assert_eq!(sent.next(&[(2, false)], 100 + ATTACH_LIMIT_MS), Next::Kill);
    }

    #[test]
    fn an_empty_tree_needs_no_action() {
        let mut sent = CtrlBreak::<i32>::sent(vec![1]);
        assert_eq!(sent.next(&[], 0), Next::Wait);
        assert!(!sent.awaits_console());
    }
}
