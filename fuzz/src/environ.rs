//! The key in the environment of a process. It counts only as a whole element of exactly that
//! variable.

use spawn_owned::contain::cookie::{VARIABLE, append, is_key, keys};

pub fn check(input: &[u8]) {
    for key in keys(input) {
        assert!(is_key(&key));
        assert!(carries(input, &format!("~{key}")), "{key} is not in the input");
    }
    // The keys of a run are found, whatever comes before and after them.
    let [outer, inner] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
    let mut environ = input.to_vec();
    environ.extend_from_slice(
        format!("\0{VARIABLE}={}\0", append(&append("", "outer", outer), "inner", inner)).as_bytes(),
    );
    environ.extend_from_slice(input);
    let keys = keys(&environ);
    assert!(keys.iter().any(|it| it == outer) && keys.iter().any(|it| it == inner));
}

/// The same check by a plain search.
fn carries(environ: &[u8], element: &str) -> bool {
    let prefix = [VARIABLE.as_bytes(), b"="].concat();
    environ.split(|&byte| byte == 0).filter(|pair| pair.starts_with(&prefix)).any(|pair| {
        let list = [b":", &pair[prefix.len()..], b":"].concat();
        let element = [b":", element.as_bytes(), b":"].concat();
        list.windows(element.len()).any(|part| part == element)
    })
}
