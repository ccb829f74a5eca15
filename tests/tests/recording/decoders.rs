//! All ways to decode a bundle, which must give the same result.

use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::{Engine, Watch};
use backtrail_oracle::Libipt;
use std::num::NonZeroUsize;
use std::path::Path;

/// Decodes a bundle by each engine, with one thread and with several.
///
/// # Panics
///
/// The bundle cannot be decoded, or two results differ.
#[track_caller]
pub fn assert_agree(bundle: &Path) {
    let ways: [(Option<&'static dyn Engine>, usize); 3] = [(None, 1), (None, 3), (Some(&Libipt), 1)];
    let [first, others @ ..] = ways.map(|(engine, jobs)| digests(bundle, engine, jobs));
    for (other, way) in others.iter().zip(&ways[1..]) {
        assert_eq!(other, &first, "{way:?}");
    }
}

/// Returns a line for each thread: the numbers of instructions, errors and gaps, and the digest of
/// the instructions.
fn digests(bundle: &Path, engine: Option<&'static dyn Engine>, jobs: usize) -> Vec<String> {
    let options = OpenOptions {
        engine,
        jobs: NonZeroUsize::new(jobs),
        ..OpenOptions::default()
    };
    let session = Session::open(bundle, &options, &Watch::none()).unwrap();
    let threads = session.threads().iter().map(|thread| &thread.history);
    let line = |history: &backtrail_decoder::History| {
        format!(
            "thread {} instructions {} errors {} digest {:016x} gaps {}",
            history.tid(),
            history.len(),
            history.errors(),
            history.digest(),
            history.gaps().count()
        )
    };
    threads.map(line).collect()
}
