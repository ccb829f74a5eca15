//! Counters of the profile store for Prometheus.

use crate::error::Result;
use crate::hub::Hub;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The start of all names.
const PREFIX: &str = "backtrail_hub_profile";

/// Adds the counters of intake, compaction and caches, and the size of the store.
///
/// # Errors
/// Fails if the database fails.
pub async fn write(hub: &Hub, text: &mut String) -> Result<()> {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let intake = hub.intake.counts();
    let compactions = &hub.compactions;
    let counters = [
        ("pushes", "Pushes that were stored.", &intake.pushes),
        (
            "repeated_pushes",
            "Pushes that were stored before, and were left out.",
            &intake.repeated,
        ),
        (
            "refused_pushes",
            "Pushes that the store refused.",
            &intake.refused,
        ),
        (
            "failed_pushes",
            "Pushes that failed with the store.",
            &intake.failed,
        ),
        ("samples", "Samples that were stored.", &intake.samples),
        (
            "idle_samples",
            "Samples of idle threads that a rule left out.",
            &intake.idle,
        ),
        (
            "stacks",
            "Distinct stacks of each segment that the intake wrote.",
            &intake.stacks,
        ),
        (
            "written_bytes",
            "Bytes of the segments that the intake wrote.",
            &intake.bytes,
        ),
        (
            "compactions",
            "Segments that replaced others.",
            &compactions.written,
        ),
        (
            "compacted_segments",
            "Segments that were replaced.",
            &compactions.replaced,
        ),
        (
            "compacted_samples",
            "Samples of segments that replaced others.",
            &compactions.samples,
        ),
        (
            "compacted_bytes",
            "Bytes of segments that replaced others.",
            &compactions.bytes,
        ),
        (
            "compaction_conflicts",
            "Compactions that another hub had done.",
            &compactions.conflicts,
        ),
        (
            "compaction_failures",
            "Compactions that failed.",
            &compactions.failed,
        ),
    ];
    for (name, help, counter) in counters {
        let name = format!("{PREFIX}_{name}_total");
        let value = read(counter);
        let _ = writeln!(
            text,
            "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
        );
    }
    let name = format!("{PREFIX}_compaction_seconds_total");
    let seconds = read(&compactions.milliseconds) as f64 / 1000.0;
    let _ = writeln!(
        text,
        "# HELP {name} Seconds of compactions.\n# TYPE {name} counter\n{name} {seconds}"
    );
    let (segments, samples, bytes) = hub.database.profile_totals().await?;
    for (name, help, value) in [
        ("segments", "Segments of the store.", segments),
        ("stored_samples", "Samples of the store.", samples),
        ("stored_bytes", "Bytes of the store.", bytes),
    ] {
        let name = format!("{PREFIX}_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    let caches = hub.profiles.cache_stats();
    for (part, kind, help) in [
        ("hits_total", "counter", "Reads that a cache answered."),
        (
            "misses_total",
            "counter",
            "Reads of the object store for a cache.",
        ),
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
    Ok(())
}
