//! What is to hold for any bytes, wherever bytes come from somebody else: another process, a file, the kernel's words about a process
//! that chooses its own name.
//!
//! Each module has `check`, which panics if its property does not hold for an input. libFuzzer drives it (`fuzz_targets/`), or plain
//! mutations where libFuzzer cannot be built (`bin/plain.rs`).

pub mod conversation;
pub mod environ;
pub mod framing;
pub mod journal;
pub mod macos;
pub mod messages;
pub mod orphan_log;
pub mod registry_file;
pub mod stat;

mod records;
mod samples;

/// Where libFuzzer is to find what the encoders have to offer, beside the files in `seeds/`.
const SAMPLES: &str = "FUZZ_SAMPLES";

/// Writes a target's samples where its driver looks next.
pub fn offer_samples(name: &str) {
    let Some(folder) = std::env::var_os(SAMPLES).map(std::path::PathBuf::from) else { return };
    for target in TARGETS.iter().filter(|target| target.name == name) {
        for (index, sample) in (target.samples)().iter().enumerate() {
            std::fs::write(folder.join(format!("sample-{index}")), sample).expect("a file for a sample");
        }
    }
}

/// Where an input comes from, and what it is to be checked for.
pub struct Target {
    pub name: &'static str,
    pub check: fn(&[u8]),
    /// Inputs to begin with that only our own encoder can make. Others are files, in `seeds/`.
    pub samples: fn() -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, check: fn(&[u8]), samples: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, check, samples }
}

pub const TARGETS: [Target; 9] = [
    target("framing", framing::check, samples::frames),
    target("messages", messages::check, samples::messages),
    target("conversation", conversation::check, samples::conversations),
    target("journal", journal::check, Vec::new),
    target("registry_file", registry_file::check, Vec::new),
    target("stat", stat::check, Vec::new),
    target("environ", environ::check, Vec::new),
    target("macos", macos::check, samples::macos),
    target("orphan_log", orphan_log::check, Vec::new),
];
