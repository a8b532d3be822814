#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spawn_owned_fuzz::offer_samples("journal"),
    |input: &[u8]| spawn_owned_fuzz::journal::check(input)
);
