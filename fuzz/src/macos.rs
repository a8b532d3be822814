//! The bytes in which macOS describes processes.

use spawn_owned::identity::macos::{kinfo, procargs::Arguments};

pub fn check(input: &[u8]) {
    let all: Vec<_> = kinfo::parse_all(input).collect();
    assert!(all.len() <= input.len() / kinfo::SIZE);
    for stat in &all {
        assert!(stat.pid >= 0 && stat.start > 0, "no such process can exist");
        assert!(stat.comm.chars().count() <= 17);
    }
    kinfo::ignored(input);

    let Some(arguments) = Arguments::parse(input) else { return };
    let environment = arguments.environment();
    assert!(environment.len() <= input.len());
    assert!(environment.windows(2).all(|pair| pair != [0, 0]), "an empty string must end the environment");
    // No argument is taken for a variable: all arguments come before the environment.
    let before: usize = arguments.words().map(|word| word.len() + 1).sum();
    assert!(environment.is_empty() || before + environment.len() <= input.len());
    assert!(arguments.name().is_none_or(|name| arguments.words().next() == Some(name)));
}
