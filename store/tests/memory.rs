//! The memory of a compaction, measured as the peak of this process, which has no other test.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_profile::{Frame, Profile, Sample, StackId, UnixNanos};
use backtrail_store::{
    Cancel, CompactionOptions, Filter, Hour, MemoryCatalog, Origin, Query, Store, StoreOptions, Writer,
    WriterLimits,
};
use object_store::local::LocalFileSystem;
use std::sync::Arc;

const HOUR: Hour = Hour(498_000);
/// The samples of a segment.
const ROWS: u64 = 50_000;
/// The segments. All of their stacks together need more memory than the limit.
const SEGMENTS: u64 = 24;
/// The stacks of a segment.
const STACKS: u64 = 10_000;

/// Returns a size in bytes from the state of this process.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// Returns a profile whose stacks are in part those of other segments, in part its own.
fn profile(segment: u64) -> Profile {
    let mut profile = Profile::default();
    let event = profile.event("cpu", "nanoseconds", 1).unwrap();
    let labels = profile.label_set(Vec::new()).unwrap();
    let mut stacks = Vec::new();
    for number in 0..STACKS {
        let own = if number % 4 == 0 { 0 } else { segment };
        let mut stack = StackId::EMPTY;
        for depth in 0..12 {
            let frame = Frame::Address(own << 40 | (number % (32 << depth)) << 8 | depth);
            let frame = profile.frames.intern(frame).unwrap();
            stack = profile.stacks.push(stack, frame).unwrap();
        }
        stacks.push(stack);
    }
    for number in 0..ROWS {
        let nanos = HOUR.start().0 + (number * 7919 + segment * 13) % 3_600_000 * 1_000_000;
        profile.samples.push(Sample {
            event,
            weight: 1,
            stack: stacks[(number * 31 % STACKS) as usize],
            time: Some(UnixNanos(nanos)),
            thread: None,
            cpu: None,
            labels,
        });
    }
    profile
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_stays_within_its_limit_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let catalog = Arc::new(MemoryCatalog::default());
    let mut writer = Writer::new(objects.clone(), catalog.clone(), WriterLimits::default());
    for segment in 0..SEGMENTS {
        let origin = Origin {
            service: format!("service-{}", segment % 5).into(),
            ..Origin::default()
        };
        writer
            .write(&origin, &profile(segment), UnixNanos(0))
            .await
            .unwrap();
        writer.flush().await.unwrap();
    }
    drop(writer);
    let store = Store::new(objects, catalog, StoreOptions::default());
    let options = CompactionOptions {
        min_segments: 2,
        memory: CompactionOptions::MIN_MEMORY,
        ..CompactionOptions::default()
    };
    // The peak begins again at the present size.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS");
    let mut live = SEGMENTS;
    while let Some(compacted) = store.compact(HOUR, options, &Cancel::default()).await.unwrap() {
        live -= compacted.removed.len() as u64 - 1;
        if live == 1 {
            break;
        }
    }
    let used = memory("VmHWM").saturating_sub(before);
    // The allocator keeps a part of the freed memory. Without the limit, the peak is 137 MiB.
    let limit = options.memory + options.memory / 4;
    assert!(used <= limit, "{used} bytes above {before}");
    assert!(live < SEGMENTS, "{live}");
    let query = Query::new(Filter::of_time(HOUR.start()..HOUR.end()));
    let (merged, coverage) = store.merge(&query, &[]).await.unwrap();
    assert_eq!((coverage.segments, coverage.rows), (live, ROWS * SEGMENTS));
    let weights = merged.samples.iter().map(|sample| sample.weight).sum::<i64>();
    assert_eq!(weights, (ROWS * SEGMENTS) as i64);
    println!("{live} segments, {} MiB", used >> 20);
}
