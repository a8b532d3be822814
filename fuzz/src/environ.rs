//! The cookie in somebody's environment: a whole element of exactly that variable, or it is none.

use spawn_owned::contain::cookie::{VARIABLE, append, run_ids};

pub fn check(input: &[u8]) {
    for id in run_ids(input) {
        assert!(!id.is_empty() && !id.contains([':', '\0']));
        assert!(carries(input, &id), "{id} is not there");
    }
    // Whatever there is before and behind it, what a run was given is found; and its neighbours do not become another's.
    let id = "0b1c2d3e-run";
    let mut environ = input.to_vec();
    environ.extend_from_slice(format!("\0{VARIABLE}={}\0", append(Some("outer"), id)).as_bytes());
    environ.extend_from_slice(input);
    let ids = run_ids(&environ);
    assert!(ids.iter().any(|it| it == id) && ids.iter().any(|it| it == "outer"));
}

/// The same, said by looking for it.
fn carries(environ: &[u8], id: &str) -> bool {
    let prefix = [VARIABLE.as_bytes(), b"="].concat();
    environ.split(|&byte| byte == 0).filter(|pair| pair.starts_with(&prefix)).any(|pair| {
        let list = [b":", &pair[prefix.len()..], b":"].concat();
        let element = [b":", id.as_bytes(), b":"].concat();
        list.windows(element.len()).any(|part| part == element)
    })
}
