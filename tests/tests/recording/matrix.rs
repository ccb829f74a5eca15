//! Every build of the example programs, each checked once.

use backtrail_tests::programs::{PROGRAMS, Program, Variant};
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// Returns every program with each of its link variants.
pub fn every_variant() -> impl Iterator<Item = (&'static Program, Variant)> + Send {
    let variants =
        |program: &'static Program| program.variants.iter().map(move |&variant| (program, variant));
    PROGRAMS.iter().flat_map(variants)
}

/// Checks each build, in as many threads as there are processors. Each recorder runs its own
/// program. Fails with the names of the builds whose check panicked.
#[track_caller]
pub fn check(
    builds: impl Iterator<Item = (&'static Program, Variant)> + Send,
    check: impl Fn(&Program, Variant) + Sync + std::panic::RefUnwindSafe,
) {
    let (builds, failed) = (Mutex::new(builds), Mutex::new(Vec::new()));
    let worker = || {
        let next = || builds.lock().unwrap().next();
        while let Some((program, variant)) = next() {
            let start = Instant::now();
            let passed = catch_unwind(|| check(program, variant)).is_ok();
            let name = format!("{} {}", program.name, variant.name());
            eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f32());
            if !passed {
                failed.lock().unwrap().push(name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    assert_eq!(failed.into_inner().unwrap(), [""; 0]);
}
