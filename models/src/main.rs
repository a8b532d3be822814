//! Explores every state that the scenarios can reach, and checks that every flaw is found. See `docs/models.md`.

mod failures;
mod flaws;
mod keeper;
mod model;
mod owner;
mod registry;
mod scenarios;
mod visitor;
mod world;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use flaws::Flaw;
use model::Scenario;

fn main() -> ExitCode {
    // A part of a name: these scenarios alone, without the flaws.
    let wanted = std::env::args().nth(1);
    let mut all_well = true;
    if wanted.is_none() {
        println!("{:<24} found in", "flaw");
        for (flaw, scenario, broken) in Flaw::ALL {
            all_well &= is_found(flaw, scenario, broken);
        }
        println!();
    }
    println!("{:<44} {:>10} {:>6} {:>8}", "scenario", "states", "depth", "seconds");
    let is_wanted = |scenario: &&Scenario| wanted.as_ref().is_none_or(|part| scenario.name.contains(part));
    for scenario in scenarios::ALL.iter().filter(is_wanted) {
        all_well &= holds(scenario);
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn holds(scenario: &Scenario) -> bool {
    let began = Instant::now();
    let checker = scenario.checker().threads(threads()).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{:<44} {states:>10} {depth:>6} {:>8.1}", scenario.name, began.elapsed().as_secs_f64());
    for (broken, path) in checker.discoveries() {
        println!("  BROKEN: {broken}");
        for step in path.into_actions() {
            println!("    {step:?}");
        }
    }
    checker.discoveries().is_empty()
}

fn is_found(flaw: Flaw, scenario: Scenario, broken: &'static str) -> bool {
    let name = format!("{flaw:?}");
    let flawed = Scenario { flaw: Some(flaw), ..scenario };
    let until = HasDiscoveries::AnyOf(BTreeSet::from([broken]));
    let checker = flawed.checker().threads(threads()).finish_when(until).spawn_bfs().join();
    let found = checker.discovery(broken).map(|path| path.into_actions().len());
    match found {
        Some(steps) => println!("{name:<24} {}, {steps} steps: not so that {broken}", scenario.name),
        None => println!("{name:<24} NOWHERE"),
    }
    found.is_some()
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
