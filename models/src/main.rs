//! Explores every state that the scenarios can reach, and checks that every flaw is found. See
//! `docs/models.md`.

mod carriers;
mod failures;
mod flaws;
mod keeper;
mod model;
mod other_bot;
mod owner;
mod passes;
mod registry;
mod scenarios;
mod world;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use carriers::{CARRIERS, Carriers};
use flaws::Flaw;
use model::Scenario;
use passes::{PASSES, Passes};

fn main() -> ExitCode {
    // The argument is a part of a name: check only these scenarios, and no flaws.
    let wanted = std::env::args().nth(1);
    let mut all_passed = true;
    if wanted.is_none() {
        println!("{:<24} found in", "flaw");
        for (flaw, scenario, violated) in Flaw::ALL {
            let flawed = Scenario { flaw: Some(flaw), ..scenario };
            all_passed &= is_found(&format!("{flaw:?}"), scenario.name, flawed, violated);
        }
        for (flaw, violated) in passes::Flaw::ALL {
            let flawed = Passes { flaw: Some(flaw), ..PASSES };
            all_passed &= is_found(&format!("{flaw:?}"), passes::NAME, flawed, violated);
        }
        for (flaw, violated) in carriers::Flaw::ALL {
            let flawed = Carriers { flaw: Some(flaw), ..CARRIERS };
            all_passed &= is_found(&format!("{flaw:?}"), carriers::NAME, flawed, violated);
        }
        println!();
    }
    println!("{:<44} {:>10} {:>6} {:>8}", "scenario", "states", "depth", "seconds");
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|part| name.contains(part));
    for scenario in scenarios::ALL.into_iter().filter(|scenario| is_wanted(scenario.name)) {
        all_passed &= holds(scenario.name, scenario);
    }
    if is_wanted(passes::NAME) {
        all_passed &= holds(passes::NAME, PASSES);
    }
    if is_wanted(carriers::NAME) {
        all_passed &= holds(carriers::NAME, CARRIERS);
    }
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn holds<M>(name: &str, model: M) -> bool
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let checker = model.checker().threads(threads()).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name:<44} {states:>10} {depth:>6} {:>8.1}", began.elapsed().as_secs_f64());
    for (violated, path) in checker.discoveries() {
        println!("  VIOLATED: {violated}");
        for step in path.into_actions() {
            println!("    {step:?}");
        }
    }
    checker.discoveries().is_empty()
}

fn is_found<M>(flaw: &str, name: &str, flawed: M, violated: &'static str) -> bool
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let until = HasDiscoveries::AnyOf(BTreeSet::from([violated]));
    let checker = flawed.checker().threads(threads()).finish_when(until).spawn_bfs().join();
    let found = checker.discovery(violated).map(|path| path.into_actions().len());
    match found {
        Some(steps) => println!("{flaw:<24} {name}, {steps} steps, violates: {violated}"),
        None => println!("{flaw:<24} NOT FOUND"),
    }
    found.is_some()
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
