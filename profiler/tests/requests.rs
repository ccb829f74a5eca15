//! Recordings on request beside one that runs.
#![cfg(test)]

use backtrail_profile::format::recording;
use backtrail_profile::{Frame, Profile};
use backtrail_profiler::{
    Error, RecordOptions, RecordingOutput, RequestOptions, Requester, Requests, SampledEvent, SpoolOptions,
    StackMethod, Summary, Target, record_with_requests, requests,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn options(folder: &Path) -> RecordOptions {
    RecordOptions {
        target: Target::All,
        events: vec![SampledEvent::Cpu],
        frequency: 99,
        stack_method: StackMethod::Auto,
        duration: None,
        output: RecordingOutput::Spool(SpoolOptions {
            directory: folder.join("spool"),
            interval: Duration::from_secs(60),
            max_bytes: 1 << 26,
        }),
        cpu_budget: 100.0,
    }
}

fn request(folder: &Path, name: &str, millis: u64) -> RequestOptions {
    RequestOptions {
        events: vec![SampledEvent::Cpu],
        frequency: 499,
        stack_method: StackMethod::Auto,
        duration: Duration::from_millis(millis),
        path: folder.join(name),
        max_bytes: 1 << 24,
        cpu_budget: 100.0,
    }
}

/// Computes until `stop` is set.
#[inline(never)]
fn compute_for_the_request(stop: &AtomicBool) -> u64 {
    let mut number = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
    }
    number
}

/// Runs a recording of all processes while `with` runs. `None`: this user may not do that.
fn beside<T: Send>(folder: &Path, with: impl FnOnce(&Requester, &AtomicBool) -> T) -> Option<(Summary, T)> {
    let (requester, taken): (Requester, Requests) = requests();
    let (stop, idle) = (AtomicBool::new(false), AtomicBool::new(false));
    let options = options(folder);
    let (first, result) = std::thread::scope(|scope| {
        let first = scope.spawn(|| record_with_requests(&options, taken, &stop, &mut |_| {}));
        let busy = scope.spawn(|| compute_for_the_request(&idle));
        let result = with(&requester, &stop);
        stop.store(true, Ordering::Relaxed);
        idle.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        (first.join().unwrap(), result)
    });
    match first {
        Ok(first) => Some((first, result)),
        Err(error @ Error::NotAllowed { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn read(path: &Path) -> Profile {
    recording::read(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the samples of this process that have a frame of its binary with a build id.
fn own_samples(profile: &Profile) -> usize {
    let own = profile
        .threads
        .iter()
        .filter(|(_, thread)| thread.pid.0 == std::process::id());
    let own: Vec<_> = own.map(|(id, _)| id).collect();
    let has_build_id = |frame: &Frame| match frame {
        Frame::Code { module, .. } => profile
            .modules
            .get(*module)
            .is_some_and(|module| module.build_id.is_some()),
        _ => false,
    };
    let samples = profile.samples.iter().filter(|sample| {
        let mut frames = profile.stacks.frames(sample.stack);
        sample.thread.is_some_and(|thread| own.contains(&thread))
            && frames.any(|frame| profile.frames.get(frame).is_some_and(has_build_id))
    });
    samples.count()
}

#[test]
fn request_shares_the_known_processes() {
    let folder = tempfile::tempdir().unwrap();
    let ran = beside(folder.path(), |requester, _| {
        // The second one finds what the first one has learned.
        ["first", "second"].map(|name| requester.record(&request(folder.path(), name, 700)))
    });
    let Some((first, requested)) = ran else { return };
    for (name, summary) in ["first", "second"].into_iter().zip(requested) {
        let summary = summary.unwrap();
        // Kernel threads may have started in between, whose mappings no record describes.
        assert!(
            summary.processes_read < first.processes_read / 2,
            "{} of {}",
            summary.processes_read,
            first.processes_read
        );
        assert_eq!(summary.no_ebpf, first.no_ebpf);
        let profile = read(&folder.path().join(name));
        assert!(own_samples(&profile) > 10, "{name}: {summary:?}");
    }
    let second = read(&folder.path().join("second"));
    let spooled = backtrail_profiler::spool::complete_files(&folder.path().join("spool")).unwrap();
    let all: usize = spooled.iter().map(|file| own_samples(&read(&file.path))).sum();
    assert!(all > 10, "the recording that runs goes on");
    assert!(!second.samples.is_empty());
}

#[test]
fn end_of_the_recording_ends_requests_with_their_samples() {
    let folder = tempfile::tempdir().unwrap();
    let ran = beside(folder.path(), |requester, stop| {
        std::thread::scope(|scope| {
            let long = scope.spawn(|| requester.record(&request(folder.path(), "long", 600_000)));
            let short = requester.record(&request(folder.path(), "short", 800));
            stop.store(true, Ordering::Relaxed);
            (short, long.join().unwrap())
        })
    });
    let Some((_, (short, long))) = ran else { return };
    let (short, long) = (short.unwrap(), long.unwrap());
    assert!(short.progress.samples > 0 && long.progress.samples > 0);
    assert!(own_samples(&read(&folder.path().join("long"))) > 10);
}

#[test]
fn failed_request_leaves_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "other").unwrap();
    let ran = beside(folder.path(), |requester, _| {
        let refused = requester.record(&request(folder.path(), "taken", 100));
        (refused, requester.record(&request(folder.path(), "free", 100)))
    });
    let Some((_, (refused, taken))) = ran else { return };
    assert!(matches!(refused, Err(Error::Output { .. })), "{refused:?}");
    taken.unwrap();
    assert_eq!(std::fs::read(folder.path().join("taken")).unwrap(), b"other");
}

#[test]
fn request_without_a_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (requester, taken) = requests();
    drop(taken);
    match requester.record(&request(folder.path(), "none", 100)) {
        Err(Error::Ended) => {}
        Err(error @ Error::NotAllowed { .. }) => eprintln!("skipped: {error}"),
        other => panic!("{other:?}"),
    }
}
