#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spawn_owned_fuzz::offer_samples("stat"),
    |input: &[u8]| spawn_owned_fuzz::stat::check(input)
);
