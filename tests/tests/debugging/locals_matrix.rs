//! Locals and arguments in cores of running programs, against GDB on the same core. The matrix has
//! builds of four programs by several compilers, with their levels of optimization, versions of
//! DWARF, and sanitizers.
//!
//! GDB stops each build at seeded random instructions, writes a core at each stop, and lists the
//! variables of every frame of the program's source. Backtrail lists the same from the core. Every
//! difference needs a reason that `docs/gdb.md` names.

mod answers;
mod builds;
mod compare;
mod cores;
mod normalize;
mod reasons;

use crate::gdb_answers::have_gdb;
use backtrail_tests::backtrail::repository;
use builds::Build;
use compare::Comparison;
use reasons::REASONS;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of stops in each build of the matrix.
const POSITIONS: usize = 200;
/// The number of unexplained differences that a failure lists.
const LISTED: usize = 60;

/// Compares some stops of one build; `None` if its compiler is not installed.
fn compared(build: &Build, positions: usize) -> Option<Comparison<'_>> {
    let executable = build.executable()?;
    let cores = cores::Cores::of(build, &executable, positions);
    let gdb = answers::by_gdb(build, &executable, &cores);
    assert_eq!(gdb.len(), positions, "{}: GDB stopped less often", build.name());
    let mut comparison = Comparison::new(build);
    for (number, gdb) in gdb.iter().enumerate() {
        let ours = answers::ours(&cores.path(number), gdb);
        comparison.add(number, gdb, &ours);
    }
    Some(comparison)
}

/// Returns the comparisons of all builds, which run in as many threads as the machine has.
fn all_compared(builds: &[Build], positions: usize) -> Vec<Comparison<'_>> {
    let (next, comparisons) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(build) = builds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(comparison) = compared(build, positions) {
                        eprintln!("{}", comparison.row());
                        comparisons.lock().unwrap().push(comparison);
                    }
                }
            });
        }
    });
    comparisons.into_inner().unwrap()
}

#[track_caller]
fn assert_explained(comparisons: &[Comparison<'_>]) {
    let unexplained: Vec<String> = comparisons.iter().flat_map(Comparison::unexplained).collect();
    let listed = unexplained.iter().take(LISTED).map(String::as_str);
    let text = listed.collect::<Vec<_>>().join("\n");
    assert!(
        unexplained.is_empty(),
        "{} differences without a reason\n{text}",
        unexplained.len()
    );
}

#[test]
fn locals_of_a_running_program_are_gdbs() {
    if have_gdb() {
        assert_explained(&[compared(&builds::small(), 10).unwrap()]);
    }
}

/// `BACKTRAIL_LOCALS_BUILDS` selects builds whose names contain a text, and
/// `BACKTRAIL_LOCALS_POSITIONS` the number of stops.
#[test]
#[ignore = "minutes of cores with GDB: cargo xtask test-all"]
fn locals_are_gdbs_in_every_build() {
    if !have_gdb() {
        return;
    }
    let selected = std::env::var("BACKTRAIL_LOCALS_BUILDS").ok();
    let positions = std::env::var("BACKTRAIL_LOCALS_POSITIONS");
    let positions = positions.map_or(POSITIONS, |text| text.parse().unwrap());
    let mut builds = builds::all();
    builds.retain(|build| {
        selected
            .as_ref()
            .is_none_or(|text| build.name().contains(text.as_str()))
    });
    let comparisons = all_compared(&builds, positions);
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in comparisons.iter().flat_map(|comparison| &comparison.reasons) {
        *met.entry(*reason).or_default() += count;
    }
    eprintln!("{met:#?}");
    assert_explained(&comparisons);
    if selected.is_none() && comparisons.len() == builds.len() {
        for reason in REASONS {
            assert!(met.contains_key(reason.name), "never met: {}", reason.name);
        }
    }
}

#[test]
fn every_reason_for_other_locals_is_documented() {
    let page = std::fs::read_to_string(repository().join("docs/gdb.md")).unwrap();
    for reason in REASONS {
        let row = format!("| {} | {} |", reason.name, reason.sentence);
        assert!(page.contains(&row), "{row}");
    }
}
