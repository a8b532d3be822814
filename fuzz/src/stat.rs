//! The kernel's text about a process, which contains the process's own name; and the texts that
//! identify processes and cgroups.

use spawn_owned::contain::cgroup::name;
use spawn_owned::identity::ProcessRef;
use spawn_owned::identity::stat::{ignored, parse};
use spawn_owned::ports::table::listeners;

const AFTER_NAME: &str = "S 42 4711 4700 34816 4711 4194304 1 0 0 0 2 3 40 50 20 0 1 0 987654 1 2 3";

pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Some(stat) = parse(&text) {
        assert!(text.contains(&stat.comm));
        assert!(text.contains(&stat.start.to_string()), "the start time is not in the input");
    }
    // Whatever its name is, a process cannot forge the other fields.
    let named = parse(&format!("4711 ({text}) {AFTER_NAME}")).expect("the other fields are well-formed");
    assert_eq!((named.pid, named.comm.as_str()), (4711, &*text));
    assert_eq!((named.ppid, named.pgrp, named.session, named.start), (42, 4711, 4700, 987_654));

    ignored(&text);
    assert!(listeners(&text).count() <= text.lines().count());
    if let Ok(token) = text.parse::<ProcessRef>() {
        assert_eq!(token.to_string(), text, "a token has one spelling");
    }
    if let Some(keeper) = name::keeper(&text) {
        assert_eq!(name::of(&keeper), text, "a cgroup name identifies one keeper");
    }
}
