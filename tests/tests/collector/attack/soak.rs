//! Storms of four users for a long time, and the crashes of a fifth: `cargo xtask test-all`.

use crate::attack::crashes::{Place, by, memory, peak, silent, storm_program};
use crate::collector::{Collector, CorePattern, cannot, core_pattern, quiet, until};
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ordinary users, each with another kind of load.
const ATTACKERS: [u32; 4] = [60_001, 60_002, 60_003, 60_004];
const VICTIM: u32 = 60_005;
/// The number of crashes of the victim.
const CRASHES: usize = 1000;

/// Returns the duration, which `BACKTRAIL_SOAK_MINUTES` overrides.
fn duration() -> Duration {
    let minutes = std::env::var("BACKTRAIL_SOAK_MINUTES")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(60 * minutes.unwrap_or(60))
}

fn run(command: &mut Command) {
    quiet(command).status().unwrap();
}

#[test]
#[ignore = "takes an hour"]
fn a_thousand_crashes_survive_an_hour_of_storms() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("spool_limit = \"20G\"\n[crash]\nhold_limit = \"5s\"\n");
    let _before = CorePattern::set("core");
    collector.start();
    let place = Place::new();
    let (storm, program) = (
        place.copy(&storm_program(), "storm"),
        place.copy(&memory(), "memory"),
    );
    let victim = place.copy(&memory(), "victim");
    let sparse = place.path("sparse");
    File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let is_over = AtomicBool::new(false);
    let end = Instant::now() + duration();
    let mut slowest = Duration::ZERO;
    let mut pids = Vec::new();
    let goes_on = || !is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on() {
                run(by(ATTACKERS[0], &storm).args(["300", "20"]));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                run(by(ATTACKERS[1], &program).args(["mappings", "32000"]));
                run(by(ATTACKERS[1], &program).args(["code", "12", "250"]));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                run(by(ATTACKERS[2], &program)
                    .arg("pages")
                    .arg(&sparse)
                    .arg("1048576"));
                run(by(ATTACKERS[2], &storm).args(["20", "5"]));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                let place = Place::new();
                match silent(&place, ATTACKERS[3], 10, 4, None) {
                    Some(mut server) => drop(server.wait()),
                    None => std::thread::sleep(Duration::from_secs(10)),
                }
            }
        });
        for number in 0..CRASHES {
            let begun = Instant::now();
            let mut child = quiet(&mut by(VICTIM, &victim)).spawn().unwrap();
            child.wait().unwrap();
            slowest = slowest.max(begun.elapsed());
            pids.push(child.id());
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left / (CRASHES - number) as u32);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(slowest < Duration::from_secs(6), "{slowest:?}");
    let mut saved = 0;
    until("all crashes of the victim are saved", || {
        let listed = collector.list();
        let of_victim = |crash: &&serde_json::Value| {
            crash["complete"] == true
                && crash["executable"]
                    .as_str()
                    .is_some_and(|path| path.ends_with("/victim"))
        };
        saved = listed.iter().filter(of_victim).count();
        saved == CRASHES
    });
    assert!(peak(&collector) < 528 << 20, "{}", peak(&collector));
    assert_eq!(collector.metric("bundles_failed_total"), 0.0);
    collector.stop();
    assert_eq!(core_pattern(), "core");
    eprintln!("{saved} of {CRASHES} crashes are complete; the slowest took {slowest:?}");
}
