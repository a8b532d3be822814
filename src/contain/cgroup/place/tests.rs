use super::*;

const HYBRID: &str = "\
22 1 0:20 / /proc rw,relatime - proc proc rw
30 25 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/pids rw,nosuid shared:11 - cgroup cgroup rw,pids
";
const UNIFIED: &str = "30 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

fn found(mountinfo: &str, own: &str) -> Result<Vec<String>, WhyNot> {
    let candidates = candidates(mountinfo, own)?;
    Ok(candidates.iter().map(|candidate| candidate.dir.display().to_string()).collect())
}

#[track_caller]
fn check(mountinfo: &str, own: &str, expected: &[&str]) {
    assert_eq!(found(mountinfo, own), Ok(expected.iter().map(|&dir| dir.to_owned()).collect()));
}

#[test]
fn the_own_cgroup_is_found_in_every_mount_layout() {
    check(HYBRID, "8:pids:/\n1:name=systemd:/\n0::/\n", &["/sys/fs/cgroup/unified"]);
    check(HYBRID, "8:pids:/other\n0::/a.slice/b.service\n", &["/sys/fs/cgroup/unified/a.slice/b.service"]);
    check(UNIFIED, "0::/user.slice/s.scope\n", &["/sys/fs/cgroup/user.slice/s.scope"]);
}

#[test]
fn a_bind_mounted_sub_root_is_not_applied_twice() {
    let bound = "40 25 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
    check(bound, "0::/docker/abc\n", &["/sys/fs/cgroup"]);
    check(bound, "0::/docker/abc/bot\n", &["/sys/fs/cgroup/bot"]);
}

#[test]
fn a_cgroup_that_is_not_mounted_here_is_not_confused_with_another() {
    let bound = "40 25 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
    for own in ["/", "/docker", "/docker/abcd", "/docker/ab", "/../abc", "/docker/abc/../x"] {
        let expected = Err(WhyNot::OutOfSight { cgroup: own.to_owned() });
        assert_eq!(found(bound, &format!("0::{own}\n")), expected, "{own}");
    }
    // The mount shows more than the cgroup namespace. The path from its root to this process has no
    // name here.
    let above = "40 25 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
    assert_eq!(found(above, "0::/\n"), Err(WhyNot::OutOfSight { cgroup: "/".into() }));
}

#[test]
fn only_octal_escapes_in_mount_points_and_roots_are_decoded() {
    let odd = "40 25 0:26 /a\\040b /mnt/x\\134y\\040z rw - cgroup2 cgroup rw\n";
    check(odd, "0::/a b/c\n", &["/mnt/x\\y z/c"]);
    assert_eq!(unescaped("\\04").as_deref(), Some("\\04"));
    assert_eq!(unescaped("\\089").as_deref(), Some("\\089"));
    assert_eq!(unescaped("\\777").as_deref(), Some("\\777"));
}

#[test]
fn read_write_mounts_come_first_and_covered_mounts_are_skipped() {
    let two = "40 25 0:26 / /one ro - cgroup2 cgroup rw\n41 25 0:26 / /two rw - cgroup2 cgroup rw\n";
    check(two, "0::/x\n", &["/two/x", "/one/x"]);
    let over = "40 25 0:26 / /m rw - cgroup2 cgroup rw\n41 40 0:26 /x /m ro - cgroup2 cgroup rw\n";
    check(over, "0::/x\n", &["/m"]);
}

#[test]
fn without_cgroup_v2_the_reason_is_returned() {
    assert_eq!(found(UNIFIED, "8:pids:/\n"), Err(WhyNot::ForeignProcess));
    assert_eq!(found("", "0::/\n"), Err(WhyNot::NotMounted));
    assert_eq!(found("22 1 0:20 / /proc rw - cgroup x rw,pids\n", "0::/\n"), Err(WhyNot::NotMounted));
    assert_eq!(found(UNIFIED, "0::/gone (deleted)\n"), Err(WhyNot::Removed));
}

#[test]
fn an_invalid_line_is_no_mount() {
    for line in
        ["", " - cgroup2", "1 2 3 - cgroup2 x rw", "1 2 3 / - cgroup2 x rw", "1 2 3 / /m - cgroup2 x rw"]
    {
        assert!(cgroup2_mount(line).is_none(), "{line:?}");
    }
}

fn level(path: &str) -> Level {
    let path = path.into();
    Level { path, kind: Kind::Domain, delegated: false, may_create: true, has_processes: false }
}

/// This process is in the first level.
fn judged(systemd: bool, mut levels: Vec<Level>) -> Result<(String, Option<String>), WhyNot> {
    levels[0].has_processes = true;
    let base = judge(&Facts { switched_off: false, managed_by_systemd: systemd, levels })?;
    let text = |path: PathBuf| path.display().to_string();
    Ok((text(base.dir), base.roomy.map(text)))
}

fn not_delegated(unit: &str) -> Result<(String, Option<String>), WhyNot> {
    Err(WhyNot::NotDelegated { unit: unit.into() })
}

#[test]
fn a_cgroup_of_systemd_is_used_only_if_it_is_delegated() {
    let root = || Level { kind: Kind::Root, ..level("/c") };
    assert_eq!(
        judged(true, vec![level("/c/system.slice/bot.service"), level("/c/system.slice"), root()]),
        not_delegated("bot.service")
    );
    assert_eq!(judged(true, vec![root()]), not_delegated("c"));
    let delegated = Level { delegated: true, ..level("/c/system.slice/bot.service") };
    let levels = vec![delegated, level("/c/system.slice"), root()];
    assert_eq!(judged(true, levels), Ok(("/c/system.slice/bot.service".into(), None)));
}

#[test]
fn delegation_to_the_users_systemd_is_no_delegation_to_its_services() {
    let of = |own: &str| {
        let user = Level { delegated: true, ..level("/c/user@1.service") };
        judged(true, vec![level(own), level("/c/user@1.service/app.slice"), user])
    };
    assert_eq!(of("/c/user@1.service/app.slice/bot.service"), not_delegated("bot.service"));
    assert_eq!(of("/c/user@1.service/app.slice/tmux.scope"), not_delegated("tmux.scope"));
}

#[test]
fn limits_are_possible_up_to_the_delegated_unit_and_not_above_it() {
    let unit = || Level { delegated: true, ..level("/c/bot.service") };
    let levels = vec![level("/c/bot.service/main"), unit(), level("/c")];
    assert_eq!(judged(true, levels), Ok(("/c/bot.service/main".into(), Some("/c/bot.service".into()))));
    let crowded = vec![level("/c/bot.service/main"), Level { has_processes: true, ..unit() }, level("/c")];
    assert_eq!(judged(true, crowded), Ok(("/c/bot.service/main".into(), None)));
}

#[test]
fn without_systemd_write_permission_is_enough() {
    assert_eq!(judged(false, vec![level("/c")]), Ok(("/c".into(), None)));
    let root = Level { kind: Kind::Root, ..level("/c") };
    assert_eq!(judged(false, vec![root]), Ok(("/c".into(), Some("/c".into()))));
    let shut = Level { may_create: false, ..level("/c") };
    assert_eq!(judged(false, vec![shut.clone()]), Err(WhyNot::NotWritable { dir: "/c".into() }));
    // A parent without write permission cannot be used for limits.
    assert_eq!(judged(false, vec![level("/c/bot"), shut]), Ok(("/c/bot".into(), None)));
}

#[test]
fn a_threaded_cgroup_or_the_off_switch_prevents_a_cgroup() {
    let threaded = Level { kind: Kind::Other, ..level("/c") };
    assert_eq!(judged(false, vec![threaded]), Err(WhyNot::Threaded { dir: "/c".into() }));
    let facts = Facts { switched_off: true, managed_by_systemd: false, levels: vec![level("/c")] };
    assert_eq!(judge(&facts), Err(WhyNot::SwitchedOff));
}

#[test]
fn every_reason_says_what_to_do() {
    for (why, what) in [
        (WhyNot::SwitchedOff, SWITCH),
        (WhyNot::NotMounted, "mount"),
        (WhyNot::ForeignProcess, "kernel"),
        (WhyNot::Removed, "restart"),
        (WhyNot::OutOfSight { cgroup: "/x".into() }, "namespace"),
        (WhyNot::Threaded { dir: "/x".into() }, "start the bot in another"),
        (WhyNot::NotDelegated { unit: "bot.service".into() }, "Delegate=yes"),
        (WhyNot::NotWritable { dir: "/x".into() }, "read-write"),
    ] {
        assert!(why.to_string().contains(what), "{why}");
    }
}

#[test]
fn an_invalid_events_file_does_not_count_as_empty() {
    for (events, expected) in [
        ("populated 1\nfrozen 0\n", Some(true)),
        ("frozen 0\npopulated 0\n", Some(false)),
        ("", None),
        ("populated 2\n", None),
        ("populated \n", None),
        ("unpopulated 0\n", None),
    ] {
        assert_eq!(populated(events), expected, "{events:?}");
    }
    assert_eq!(names("cpu memory  pids\n").collect::<Vec<_>>(), ["cpu", "memory", "pids"]);
}

#[test]
fn a_systemd_unit_is_respected_even_if_systemd_is_not_visible() {
    let levels = || vec![level("/c/system.slice/docker-1.scope"), level("/c/system.slice"), level("/c")];
    assert_eq!(judged(false, levels()), not_delegated("docker-1.scope"));
}

#[test]
fn a_bot_inside_a_run_gets_no_limits_above_that_run() {
    let run = "/c/spawn-owned-7-8-9";
    let levels = || vec![level(run), Level { kind: Kind::Root, ..level("/c") }];
    assert_eq!(judged(false, levels()), Ok((run.into(), None)));
    let inner = "/c/spawn-owned-7-8-9/bot";
    let levels = vec![level(inner), level(run), Level { kind: Kind::Root, ..level("/c") }];
    assert_eq!(judged(false, levels), Ok((inner.into(), Some(run.into()))));
}
