//! The child process: `backtrail-hub analyze BUNDLE --output FILE`.

use super::collect::collect;
use super::confine::{ChildLimits, TaskFiles, confine};
use super::exit::{EXIT_REFUSED, status_of};
use super::redaction::Redaction;
use backtrail_debugger::{Error, OpenOptions, Session, Watch};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The shortest time between two lines of progress.
const INTERVAL: Duration = Duration::from_millis(100);

/// The arguments of `analyze`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct AnalyzeArguments {
    /// The bundle, as a directory or a packed file.
    pub bundle: PathBuf,
    /// The file for the result, as JSON.
    #[arg(long)]
    pub output: PathBuf,
    /// A directory with debug files by build id.
    #[arg(long)]
    pub debug_dir: Vec<PathBuf>,
    /// A directory with source files.
    #[arg(long)]
    pub source_dir: Vec<PathBuf>,
    /// Data to leave out of the result.
    #[arg(long, value_enum)]
    pub redact: Vec<Redaction>,
    /// Decode no more than this number of MiB at the end of each trace.
    #[arg(long, default_value_t = 16)]
    pub last_mib: u64,
    /// Resources.
    #[command(flatten)]
    pub limits: ChildLimits,
}

/// A line of progress on standard output.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProgressLine {
    /// The stage in words.
    pub stage: String,
    /// The finished part of the stage, from 0 to 1.
    pub done: f64,
}

/// Confines this process, analyzes a bundle, and writes the result. Returns the exit status. The
/// reason of a failure is one sentence on standard error.
#[must_use]
pub fn run(arguments: &AnalyzeArguments) -> ExitCode {
    match analyze(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, reason)) => {
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::from(status)
        }
    }
}

pub(super) fn analyze(arguments: &AnalyzeArguments) -> Result<(), (u8, String)> {
    let mut files = TaskFiles {
        readable: vec![arguments.bundle.as_path()],
        targets: vec![arguments.output.as_path()],
    };
    let directories = arguments.debug_dir.iter().chain(&arguments.source_dir);
    files.readable.extend(directories.map(PathBuf::as_path));
    confine(&arguments.limits, &files).map_err(|reason| (1, reason))?;
    let cancel = AtomicBool::new(false);
    let last: Mutex<Option<Instant>> = Mutex::new(None);
    let report = |progress: backtrail_debugger::Progress| {
        let Ok(mut last) = last.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        *last = Some(Instant::now());
        let line = ProgressLine {
            stage: progress.stage.describe().to_owned(),
            done: progress.done as f64 / progress.total.max(1) as f64,
        };
        if let Ok(line) = serde_json::to_string(&line) {
            // The hub may have closed its end. The result matters more.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    };
    let watch = Watch {
        cancel: &cancel,
        progress: &report,
    };
    let options = OpenOptions {
        last: Some(arguments.last_mib.max(1) << 20),
        main_calls: true,
        debug_roots: arguments.debug_dir.clone(),
        source_paths: arguments.source_dir.clone(),
        ..OpenOptions::default()
    };
    // A file that cannot be read is not the bundle's fault.
    let failed = |error: Error| match error.is_refused() || matches!(error, Error::NoThreads(_)) {
        true => (EXIT_REFUSED, error.to_string()),
        false => (status_of(&error, 1), error.to_string()),
    };
    let session = Session::open(&arguments.bundle, &options, &watch).map_err(failed)?;
    let analysis = collect(session, &arguments.redact, &watch).map_err(failed)?;
    let json =
        serde_json::to_vec(&analysis).map_err(|error| (1, format!("cannot write the result: {error}")))?;
    let unwritten = |error: std::io::Error| {
        let text = format!("cannot write {}: {error}", arguments.output.display());
        (status_of(&error, 1), text)
    };
    std::fs::write(&arguments.output, json).map_err(unwritten)
}
