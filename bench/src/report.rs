//! Measures time and memory of a process.

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs;
use std::ops::Add;
use std::time::{Duration, Instant};

/// A duration in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Wall-clock time.
    pub wall: f64,
    /// Processor time of all threads.
    pub cpu: f64,
}

impl Add for Seconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
        }
    }
}

/// Runs `work`, and returns its result and duration.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Seconds) {
    let (start, cpu) = (Instant::now(), processor_time());
    let result = work();
    let seconds = Seconds {
        wall: start.elapsed().as_secs_f64(),
        cpu: processor_time() - cpu,
    };
    (result, seconds)
}

fn processor_time() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    now.map_or(0.0, |now| Duration::from(now).as_secs_f64())
}

/// Returns the peak memory of the process in bytes, and its current memory without mapped files.
pub fn memory() -> Value {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0) << 10
    };
    let peak = kibibytes("VmHWM:");
    json!({ "peak_rss": peak, "peak_rss_without_files": peak.saturating_sub(kibibytes("RssFile:")) })
}

/// Returns the duration of the cold run and of the best warm run, by both clocks.
pub fn seconds(runs: &[Seconds]) -> Value {
    let best = |clock: fn(&Seconds) -> f64| runs.iter().skip(1).map(clock).reduce(f64::min);
    let cold = runs.first().copied().unwrap_or_default();
    json!({
        "cold": cold.wall,
        "cold_cpu": cold.cpu,
        "warm": best(|run| run.wall),
        "warm_cpu": best(|run| run.cpu),
    })
}

/// Merges several objects.
pub fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let objects = parts.into_iter().filter_map(|part| match part {
        Value::Object(object) => Some(object),
        _ => None,
    });
    Value::Object(objects.flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_run_is_the_cold_one() {
        let runs = [3.0, 2.0, 1.0].map(|wall| Seconds { wall, cpu: 0.5 });
        let report = seconds(&runs);
        assert_eq!((&report["cold"], &report["warm"]), (&json!(3.0), &json!(1.0)));
        assert_eq!(report["warm_cpu"], json!(0.5));
        assert_eq!(seconds(&[Seconds::default()])["warm"], Value::Null);
        assert_eq!(
            joined([json!({"a": 1}), json!({"b": 2})]),
            json!({"a": 1, "b": 2})
        );
        assert!(memory()["peak_rss"].as_u64() > Some(0));
    }
}
