//! Counters of the profile store for Prometheus.

use crate::error::Result;
use crate::hub::Hub;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// The start of all names.
const PREFIX: &str = "backtrail_hub_profile";

/// Adds the counters of intake, compaction and caches, and the size of the store.
///
/// # Errors
/// Fails if the database fails.
pub async fn write(hub: &Hub, text: &mut String) -> Result<()> {
    write_intake(hub, text);
    write_compactions(hub, text);
    write_sizes(hub, text).await?;
    write_caches(hub, text);
    Ok(())
}

/// Adds a counter.
fn write_counter(text: &mut String, name: &str, help: &str, value: impl Display) {
    let name = format!("{PREFIX}_{name}_total");
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
    );
}

fn write_all(text: &mut String, counters: &[(&str, &str, &AtomicU64)]) {
    for (name, help, counter) in counters {
        write_counter(text, name, help, counter.load(Ordering::Relaxed));
    }
}

fn write_intake(hub: &Hub, text: &mut String) {
    let intake = hub.intake.counts();
    let repeated = "Pushes that were stored before, and were left out.";
    let idle = "Samples of idle threads that a rule left out.";
    let stacks = "Distinct stacks of each segment that the intake wrote.";
    let bytes = "Bytes of the segments that the intake wrote.";
    let counters = [
        ("pushes", "Pushes that were stored.", &intake.pushes),
        ("repeated_pushes", repeated, &intake.repeated),
        (
            "refused_pushes",
            "Requests of pushes that were refused.",
            &intake.refused,
        ),
        (
            "failed_pushes",
            "Pushes that failed with the store.",
            &intake.failed,
        ),
        ("samples", "Samples that were stored.", &intake.samples),
        ("idle_samples", idle, &intake.idle),
        ("stacks", stacks, &intake.stacks),
        ("written_bytes", bytes, &intake.bytes),
    ];
    write_all(text, &counters);
}

fn write_compactions(hub: &Hub, text: &mut String) {
    let counts = &hub.compactions;
    let samples = "Samples of segments that replaced others.";
    let bytes = "Bytes of segments that replaced others.";
    let conflicts = "Compactions that another hub had done.";
    let counters = [
        ("compactions", "Segments that replaced others.", &counts.written),
        (
            "compacted_segments",
            "Segments that were replaced.",
            &counts.replaced,
        ),
        ("compacted_samples", samples, &counts.samples),
        ("compacted_bytes", bytes, &counts.bytes),
        ("compaction_conflicts", conflicts, &counts.conflicts),
        ("compaction_failures", "Compactions that failed.", &counts.failed),
    ];
    write_all(text, &counters);
    let seconds = counts.milliseconds.load(Ordering::Relaxed) as f64 / 1000.0;
    write_counter(text, "compaction_seconds", "Seconds of compactions.", seconds);
}

async fn write_sizes(hub: &Hub, text: &mut String) -> Result<()> {
    let (segments, samples, bytes) = hub.database.profile_totals().await?;
    for (name, help, value) in [
        ("segments", "Segments of the store.", segments),
        ("stored_samples", "Samples of the store.", samples),
        ("stored_bytes", "Bytes of the store.", bytes),
    ] {
        let name = format!("{PREFIX}_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    Ok(())
}

fn write_caches(hub: &Hub, text: &mut String) {
    let caches = hub.profiles.cache_stats();
    let misses = "Reads of the object store for a cache.";
    for (part, kind, help) in [
        ("hits_total", "counter", "Reads that a cache answered."),
        ("misses_total", "counter", misses),
        ("bytes", "gauge", "Memory of a cache."),
    ] {
        let name = format!("{PREFIX}_cache_{part}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (cache, stats) in &caches {
            let value = match part {
                "hits_total" => stats.hits,
                "misses_total" => stats.misses,
                _ => stats.bytes,
            };
            let _ = writeln!(text, "{name}{{cache=\"{cache}\"}} {value}");
        }
    }
}
