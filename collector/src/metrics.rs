//! The counters of the daemon, for `/metrics` and the log.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines counters with name and description from one list.
macro_rules! counters {
    ($($field:ident: $help:literal,)*) => {
        /// The counters since the start.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(#[doc = $help] pub $field: Counter,)*
        }

        impl Metrics {
            /// Returns the name, description and value of each counter.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($field), $help, self.$field.get())),*].into_iter()
            }
        }
    };
}

counters! {
    crashes_seen: "Crashes that the probe reported.",
    probe_lost: "Crashes that the probe lost because its ring was full.",
    processes_held: "Processes that were held by core_pattern.",
    bundles_written: "Bundles written to the spool.",
    bundles_incomplete: "Of these, bundles in which something is missing.",
    bundles_failed: "Bundles that could not be written.",
    bundles_dropped: "Unsent bundles removed to make room.",
    crashes_limited: "Crashes not saved because of a rate limit.",
    crashes_unheld: "Crashes of processes that were not held, with only the probe's data.",
    crashes_recorded: "Crashes of processes that software recorders claim and save.",
    functions_seen: "Calls that a function trigger reported.",
    snapshots: "Bundles made on request.",
}

/// A counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn count(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// Sets the value of a counter that is kept elsewhere.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Returns the value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metrics {
    /// Returns the metrics in Prometheus's text format, version 0.0.4. `gauges` are added, with
    /// name and description.
    #[must_use]
    pub fn to_text(&self, gauges: &[(&str, &str, f64)]) -> String {
        let mut text = String::new();
        for (name, help, value) in self.all() {
            let _ = write!(
                text,
                "# HELP backtrail_{name}_total {help}\n# TYPE backtrail_{name}_total counter\nbacktrail_{name}_total {value}\n"
            );
        }
        for (name, help, value) in gauges {
            let _ = write!(
                text,
                "# HELP backtrail_{name} {help}\n# TYPE backtrail_{name} gauge\nbacktrail_{name} {value}\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_each_counter_once() {
        let metrics = Metrics::default();
        metrics.bundles_written.add(3);
        let text = metrics.to_text(&[("up_seconds", "Seconds since the start.", 1.5)]);
        assert!(text.contains("\nbacktrail_bundles_written_total 3\n"));
        assert!(text.ends_with("\nbacktrail_up_seconds 1.5\n"));
        assert_eq!(text.lines().count(), 3 * (metrics.all().count() + 1));
    }
}
