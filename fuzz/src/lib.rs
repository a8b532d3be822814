//! Properties that must hold for any bytes from outside: from another process, from a file, or from
//! the kernel about a process that chooses its own name.
//!
//! Each module has `check`, which panics if its property does not hold for an input. libFuzzer
//! calls it (`fuzz_targets/`), or plain mutations where libFuzzer cannot be built (`bin/plain.rs`).

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

/// Environment variable: the folder in which libFuzzer finds the samples of the encoders, besides
/// the files in `seeds/`.
const SAMPLES: &str = "FUZZ_SAMPLES";

/// Writes a target's samples to the folder that its driver reads next.
pub fn offer_samples(name: &str) {
    let Some(folder) = std::env::var_os(SAMPLES).map(std::path::PathBuf::from) else { return };
    for target in TARGETS.iter().filter(|target| target.name == name) {
        for (index, sample) in (target.samples)().iter().enumerate() {
            std::fs::write(folder.join(format!("sample-{index}")), sample).expect("a file for a sample");
        }
    }
}

/// A kind of input, and its check.
pub struct Target {
    pub name: &'static str,
    pub check: fn(&[u8]),
    /// Initial inputs that only our own encoder can make. All others are files in `seeds/`.
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
