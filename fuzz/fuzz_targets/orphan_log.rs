#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spawn_owned_fuzz::offer_samples("orphan_log"),
    |input: &[u8]| spawn_owned_fuzz::orphan_log::check(input)
);
