//! The same properties without libFuzzer. `plain TARGET LIMIT SEED FOLDER` checks random mutations
//! of the inputs in the folder. The limit is a time (`10 s`) or a number of inputs (`5000 inputs`).
//!
//! An input for which a property does not hold is written to `TARGET-failed`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use spawn_owned_fuzz::{TARGETS, Target};

const LONGEST: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, limit, seed, folder] = &arguments[..] else { panic!("usage: plain TARGET LIMIT SEED FOLDER") };
    let target =
        TARGETS.iter().find(|target| target.name == *name).expect("TARGET must be one of TARGETS in lib.rs");
    drive(target, &Limit::parse(limit), seed.parse().expect("SEED must be a number"), Path::new(folder));
}

enum Limit {
    Time(Duration),
    Inputs(u64),
}

impl Limit {
    fn parse(text: &str) -> Self {
        let (number, unit) = text.split_once(' ').expect("LIMIT must be a number and a unit, e.g. \"10 s\"");
        let number = number.parse().expect("LIMIT must start with a number");
        if unit == "s" { Self::Time(Duration::from_secs(number)) } else { Self::Inputs(number) }
    }

    fn is_reached(&self, began: Instant, count: u64) -> bool {
        match self {
            Self::Time(limit) => began.elapsed() >= *limit,
            Self::Inputs(limit) => count >= *limit,
        }
    }
}

fn drive(target: &Target, limit: &Limit, seed: u64, folder: &Path) {
    let mut seeds: Vec<Vec<u8>> = (target.samples)();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    // Sort, because the order of a directory differs between machines.
    paths.sort();
    seeds.extend(paths.iter().filter_map(|path| fs::read(path).ok()));
    seeds.push(Vec::new());
    // First the inputs without mutations: they include those that failed before.
    for input in &seeds {
        try_out(target, input);
    }
    let mut random = Random(seed | 1);
    let began = Instant::now();
    let mut count = 0_u64;
    // Read the clock once per hundred inputs, because it costs more than some of the inputs.
    while !limit.is_reached(began, count) {
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
        let path = format!("{}-failed", target.name);
        fs::write(&path, input).expect("the failed input can be written");
        eprintln!("{}: the property does not hold for the input in {path}", target.name);
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
