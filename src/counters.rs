//! Counters of what happened to the runs of a supervisor.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::run::reason::Reason;
use crate::run::{Deadline, Force};

/// The counters of a supervisor.
///
/// Each event is counted on the thread where it happens, so a blocked event loop loses none.
#[derive(Debug, Default)]
pub struct Counters {
    spawns: Count,
    exits: [Count; Reason::ALL.len()],
    timeouts: [Count; DEADLINES.len()],
    cleanups: [Count; MODES.len()],
    orphans: Count,
    steals: Count,
    escapes: Count,
}

const DEADLINES: [Deadline; 2] = [Deadline::Overall, Deadline::NoOutput];
const MODES: [(Force, &str); 2] = [(Force::Signal, "signal"), (Force::Kill, "kill")];

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// A command runs.
    pub fn spawned(&self) {
        self.spawns.add(1);
    }

    /// A command could not be started.
    pub fn refused(&self) {
        self.ended(Reason::SpawnError, Force::Nothing);
    }

    /// A run has ended; `force` is what was needed to end its tree.
    pub fn ended(&self, reason: Reason, force: Force) {
        at(&self.exits, &Reason::ALL, &reason).add(1);
        if let Some(mode) = MODES.iter().position(|(mode, _)| *mode == force) {
            self.cleanups[mode].add(1);
        }
    }

    /// A process had left the session of a run whose root process exited by itself.
    pub fn escaped(&self) {
        self.escapes.add(1);
    }

    /// A deadline has passed.
    pub fn timed_out(&self, deadline: Deadline) {
        at(&self.timeouts, &DEADLINES, &deadline).add(1);
    }

    /// Runs of dead bots were ended or taken over.
    pub fn reconciled(&self, orphans: u64) {
        self.orphans.add(orphans);
    }

    /// Runs were taken from an owner that is not known to be dead, because its lease had expired.
    pub fn stole(&self, runs: u64) {
        self.steals.add(runs);
    }

    /// The present values. `live` is the number of runs and registered processes that the
    /// supervisor owns.
    pub fn snapshot(&self, live: usize) -> Snapshot {
        let by = |label, counts: Vec<(&'static str, &Count)>| Family {
            label: Some(label),
            values: counts.into_iter().map(|(name, count)| (name, count.get())).collect(),
        };
        let one = |value| Family { label: None, values: vec![("", value)] };
        let live = u64::try_from(live).unwrap_or(u64::MAX);
        Snapshot(vec![
            Metric {
                name: "run_spawn_total",
                help: "Runs that were started.",
                family: one(self.spawns.get()),
            },
            Metric {
                name: "run_exit_total",
                help: "Runs that have ended, by reason.",
                family: by("reason", Reason::ALL.map(Reason::name).into_iter().zip(&self.exits).collect()),
            },
            Metric {
                name: "run_timeout_total",
                help: "Runs whose deadline has passed, by deadline.",
                family: by("type", DEADLINES.map(Deadline::name).into_iter().zip(&self.timeouts).collect()),
            },
            Metric {
                name: "run_cleanup_kill_total",
                help: "Trees that had to be ended, by means: the first signal, or SIGKILL.",
                family: by("mode", MODES.map(|mode| mode.1).into_iter().zip(&self.cleanups).collect()),
            },
            Metric {
                name: "run_reconcile_orphans_total",
                help: "Runs of dead bots that were ended or taken over.",
                family: one(self.orphans.get()),
            },
            Metric {
                name: "run_lease_steal_total",
                help: "Runs taken from an owner that was not known to be dead, because its lease had expired.",
                family: one(self.steals.get()),
            },
            Metric {
                name: "run_ownership_escape_total",
                help: "Runs whose root process exited by itself and left a process outside its session.",
                family: one(self.escapes.get()),
            },
            Metric {
                name: "run_live",
                help: "Runs and registered processes that are alive.",
                family: one(live),
            },
        ])
    }
}

/// The counter for `value`: its index in `all` is the index of its counter.
fn at<'a, T: PartialEq>(counts: &'a [Count], all: &[T], value: &T) -> &'a Count {
    &counts[all.iter().position(|other| other == value).unwrap_or(0)]
}

/// All values at one moment.
#[derive(Debug)]
pub struct Snapshot(Vec<Metric>);

#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    family: Family,
}

/// One value, or one for each value of a label.
#[derive(Debug)]
struct Family {
    label: Option<&'static str>,
    values: Vec<(&'static str, u64)>,
}

impl Snapshot {
    /// The values in Prometheus text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Metric { name, help, family } in &self.0 {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (value_of_label, value) in &family.values {
                let _ = match family.label {
                    Some(label) => writeln!(text, "{name}{{{label}=\"{value_of_label}\"}} {value}"),
                    None => writeln!(text, "{name} {value}"),
                };
            }
        }
        text
    }
}

/// Encodes each metric by name: a number, or an object with one number for each value of the label.
impl Serialize for Snapshot {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |family: &Family| {
            let mut values = family.values.iter().map(|&(name, value)| (name.to_owned(), Value::from(value)));
            if family.label.is_some() {
                Value::Object(values.collect::<Map<_, _>>())
            } else {
                values.next().map_or(Value::Null, |(_, value)| value)
            }
        };
        serializer.collect_map(self.0.iter().map(|metric| (metric.name, value(&metric.family))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used() -> Counters {
        let counters = Counters::default();
        counters.spawned();
        counters.spawned();
        counters.refused();
        counters.timed_out(Deadline::NoOutput);
        counters.ended(Reason::NoOutputTimeout, Force::Kill);
        counters.ended(Reason::OwnershipEscape, Force::Signal);
        counters.escaped();
        counters.reconciled(3);
        counters.stole(1);
        counters
    }

    #[test]
    fn a_snapshot_has_every_counter_under_its_documented_name() {
        let json = serde_json::to_value(used().snapshot(4)).unwrap();
        assert_eq!(json["run_spawn_total"], 2);
        assert_eq!(json["run_exit_total"]["spawn-error"], 1);
        assert_eq!(json["run_exit_total"]["no-output-timeout"], 1);
        assert_eq!(json["run_exit_total"]["exit"], 0);
        assert_eq!(json["run_exit_total"].as_object().unwrap().len(), Reason::ALL.len());
        assert_eq!(json["run_timeout_total"], serde_json::json!({ "overall": 0, "no-output": 1 }));
        assert_eq!(json["run_cleanup_kill_total"], serde_json::json!({ "signal": 1, "kill": 1 }));
        assert_eq!(json["run_reconcile_orphans_total"], 3);
        assert_eq!(json["run_lease_steal_total"], 1);
        assert_eq!(json["run_ownership_escape_total"], 1);
        assert_eq!(json["run_live"], 4);
    }

    #[test]
    fn the_text_has_one_help_and_one_type_line_for_each_metric() {
        let text = used().snapshot(0).text();
        for line in [
            "# TYPE run_spawn_total counter",
            "run_spawn_total 2",
            "run_exit_total{reason=\"spawn-error\"} 1",
            "run_cleanup_kill_total{mode=\"kill\"} 1",
            "# TYPE run_live gauge",
        ] {
            assert_eq!(text.lines().filter(|&it| it == line).count(), 1, "{line}\n{text}");
        }
        assert!(text.ends_with('\n'));
    }
}
