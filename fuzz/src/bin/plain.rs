//! The same properties without libFuzzer: `plain TARGET SECONDS SEED FOLDER`, inputs that are changes of those in the folder, blindly.
//!
//! An input for which a property does not hold is left behind as `failed-TARGET`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use spawn_owned_fuzz::{TARGETS, Target};

const LONGEST: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seconds, seed, folder] = &arguments[..] else { panic!("plain TARGET SECONDS SEED FOLDER") };
    let target = TARGETS.iter().find(|target| target.name == *name).expect("there is such a target");
    let limit = Duration::from_secs(seconds.parse().expect("a number of seconds"));
    drive(target, limit, seed.parse().expect("a number"), Path::new(folder));
}

fn drive(target: &Target, limit: Duration, seed: u64, folder: &Path) {
    let mut seeds: Vec<Vec<u8>> = (target.samples)();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    seeds.extend(files.filter_map(|file| fs::read(file.path()).ok()));
    seeds.push(Vec::new());
    let mut random = Random(seed | 1);
    let began = Instant::now();
    let mut count = 0_u64;
    // Read once and again: one look at the clock is dearer than some of these.
    while began.elapsed() < limit {
        for _ in 0..100 {
            let mut input = seeds[random.below(seeds.len())].clone();
            for _ in 0..random.below(6) {
                mutate(&mut input, &seeds, &mut random);
            }
            input.truncate(LONGEST);
            try_out(target, &input);
            count += 1;
        }
    }
    println!("{}: {count} inputs", target.name);
}

fn try_out(target: &Target, input: &[u8]) {
    if std::panic::catch_unwind(|| (target.check)(input)).is_err() {
        let path = format!("failed-{}", target.name);
        fs::write(&path, input).expect("a file for the input");
        eprintln!("{}: does not hold for what is in {path}", target.name);
        std::process::exit(1);
    }
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let to = (at + random.below(16)).min(input.len());
    match random.below(7) {
        0 => input.truncate(at),
        1 => drop(input.drain(at..to)),
        2 => input.extend_from_within(at..to),
        3 => input[at..to].iter_mut().for_each(|byte| *byte = random.byte()),
        4 => input[at..to].iter_mut().for_each(|byte| *byte = [0, 0xff, 0x7f, 0x80][random.below(4)]),
        5 => {
            let digits = input[at..to].iter_mut().filter(|byte| byte.is_ascii_digit());
            digits.for_each(|byte| *byte = b'0' + random.byte() % 10);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let until = (from + random.below(64)).min(other.len());
            drop(input.splice(at..at, other[from..until].iter().copied()));
        }
    }
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}
