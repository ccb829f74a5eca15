//! Runs a target on mutated seeds for a limited time, and detects panics, hangs and excess memory.

use crate::memory;
use crate::mutate::Random;
use backtrail_tests::backtrail::repository;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The time limit of a case; the slowest valid case takes less than a tenth of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The factor of the limit for a case that uses no processor.
const WAITING: u32 = 15;

/// The interval of the watchdog.
const LOOK: Duration = Duration::from_secs(1);

/// The memory limit of a case, fixed and per byte of input.
const BASE: usize = 64 << 20;
const PER_BYTE: usize = 256;

/// The minimum number of mutations, on a busy machine.
const FEWEST: u64 = 20;

/// Corrupts a case, with the other seeds as material.
pub type Mutate = fn(&mut Random, &mut Vec<u8>, &[Vec<u8>]);

/// Memory is counted for the whole process, so only one target runs at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running case and its start time, for the watchdog.
static CASE: Mutex<Option<(String, Vec<u8>, Instant)>> = Mutex::new(None);

/// Feeds the seeds, then mutations of them until the time is over, to `target`. The target returns
/// whether it accepted the input, because a target that accepts nothing tests nothing. With
/// `BACKTRAIL_FUZZ_CASE`, runs only the case in that file, which a failure wrote.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], mutate: Mutate, target: impl Fn(&[u8]) -> bool) {
    let _alone = alone();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    thread::spawn(watch);
    if let Ok(path) = env::var("BACKTRAIL_FUZZ_CASE") {
        let cost = run(name, &fs::read(path).unwrap(), &target);
        println!("{name}: {:?} and {} KiB", cost.time, cost.memory >> 10);
        return;
    }
    let kept = corpus(name);
    let all: Vec<Vec<u8>> = seeds.iter().chain(&kept).cloned().collect();
    let mut random = Random::new(number("BACKTRAIL_FUZZ_SEED", 1));
    let end = Instant::now() + Duration::from_secs(number("BACKTRAIL_FUZZ_SECONDS", 3));
    let (mut cases, mut accepted) = (0u64, 0u64);
    let mut worst = Cost::default();
    for seed in seeds {
        assert!(
            run(name, seed, &target).accepted,
            "{name}: a seed is refused as it is"
        );
    }
    // Earlier findings may or may not be refused now.
    for case in &kept {
        run(name, case, &target);
    }
    while Instant::now() < end || cases < FEWEST {
        let mut case = all[random.below(all.len())].clone();
        mutate(&mut random, &mut case, &all);
        let cost = run(name, &case, &target);
        accepted += u64::from(cost.accepted);
        if cost.time > worst.time {
            // The machine may have been busy.
            let again = run(name, &case, &target);
            worst.time = worst.time.max(cost.time.min(again.time));
        }
        worst.memory = worst.memory.max(cost.memory);
        cases += 1;
    }
    println!(
        "{name}: {cases} cases, {accepted} accepted; at most {:?} and {} KiB a case",
        worst.time,
        worst.memory >> 10
    );
    assert!(cases > 0 && accepted < cases, "{name}: nothing was refused");
}

/// Returns the cases that the repository stores for a target: findings, and cases written by hand.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = repository().join("tests/fuzz/corpus").join(name);
    let mut files: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The cost of a case.
#[derive(Default)]
struct Cost {
    accepted: bool,
    time: Duration,
    /// The maximum number of live bytes.
    memory: usize,
}

fn run(name: &str, case: &[u8], target: &impl Fn(&[u8]) -> bool) -> Cost {
    let started = Instant::now();
    *lock() = Some((name.into(), case.into(), started));
    let mut accepted = false;
    let mut result = Ok(());
    let peak = memory::peak_of(|| {
        result = panic::catch_unwind(AssertUnwindSafe(|| accepted = target(case)));
    });
    let time = started.elapsed();
    *lock() = None;
    if result.is_err() {
        panic!("{name} panicked; the case is {}", save(name, case));
    }
    let limit = BASE + PER_BYTE * case.len();
    if peak > limit {
        let path = save(name, case);
        panic!(
            "{name} took {peak} bytes of memory for {} of input; the case is {path}",
            case.len()
        );
    }
    Cost {
        accepted,
        time,
        memory: peak,
    }
}

/// Ends the process when a case takes too long, because a hang cannot be interrupted from inside.
/// A case has the limit in processor time, so that a busy machine does not fail it. One that waits
/// instead ends at [`WAITING`] times the limit, by checks of the case and not by the clock.
fn watch() {
    let (mut seen, mut looks, mut used) = (None, 0, processor_time());
    loop {
        thread::sleep(LOOK);
        let case = lock();
        let under_way = case.as_ref().map(|(_, _, since)| *since);
        if under_way == seen {
            looks += 1;
        } else {
            (looks, used) = (0, processor_time());
        }
        seen = under_way;
        if let Some((name, case, _)) = &*case
            && (processor_time() - used > PATIENCE || LOOK * looks > WAITING * PATIENCE)
        {
            eprintln!(
                "{name} takes longer than {PATIENCE:?}; the case is {}",
                save(name, case)
            );
            process::exit(101);
        }
    }
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let used = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let [user, system] = [used.user_time(), used.system_time()].map(|time| time.num_milliseconds());
    Duration::from_millis((user + system).unsigned_abs())
}

fn lock() -> MutexGuard<'static, Option<(String, Vec<u8>, Instant)>> {
    CASE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a case to a file, and returns its path.
fn save(name: &str, case: &[u8]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let path = folder.join(format!("{name}-{}", process::id()));
    let saved = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, case));
    saved.map_or_else(|error| format!("lost: {error}"), |()| path.display().to_string())
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
