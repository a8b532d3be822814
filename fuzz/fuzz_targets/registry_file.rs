#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spawn_owned_fuzz::offer_samples("registry_file"),
    |input: &[u8]| spawn_owned_fuzz::registry_file::check(input)
);
