#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spawn_owned_fuzz::offer_samples("messages"),
    |input: &[u8]| spawn_owned_fuzz::messages::check(input)
);
