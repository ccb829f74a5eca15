//! `backtrail record`.

mod crash_place;
mod options;
mod processes;
#[cfg(feature = "collector")]
mod service;

use super::last_word::KillMonitor;
use crate::args::{Record, Source};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::shell;
use crate::sources::{self, Selection};
use crate::terminal;
use backtrail_bundle::Overwrite;
use backtrail_console::output::visible;
use backtrail_debugger::signal;
use backtrail_pt::Pid;
use backtrail_recorder::{Ending, Outcome, Output as Destination, Progress, RecordOptions, record};
use options::options;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Records a program until it exits or crashes, until Ctrl-C, or until `--for` is over. Returns the
/// exit status of the program.
pub fn run(args: &Record) -> Result<ExitCode, Failure> {
    if args.source == Source::Hardware {
        return Err(Failure::failed(
            "recording with Intel PT hardware is not supported yet; record in software, or import a recording by perf",
        ));
    }
    if args.daemon {
        #[cfg(feature = "collector")]
        return service::run(args).map(|()| ExitCode::SUCCESS);
        #[cfg(not(feature = "collector"))]
        return Err(Failure::failed("this build of backtrail has no collector"));
    }
    let mut status = StatusLine::default();
    if args.keep.is_some() || !args.only.is_empty() {
        return processes::run(args, &mut status);
    }
    let mut monitor = KillMonitor::begin(args.pid);
    let interrupt = Interrupt::install();
    let mut progress = |progress: Progress| status.update(progress);
    let destination = Destination::Bundle {
        path: args.output.clone().unwrap_or_else(|| default_output(args)),
        overwrite: Overwrite::from_flag(args.overwrite),
    };
    let mut started = |pid: Pid| monitor.started(pid);
    let outcome = record(RecordOptions {
        started: Some(&mut started),
        golden: args.golden.is_some(),
        progress: Some(&mut progress),
        ..options(args, destination, interrupt.flag())
    });
    status.clear();
    let outcome = outcome?;
    if let Some(dir) = &args.golden {
        write_golden(dir, &outcome)?;
    }
    let added = outcome
        .bundle
        .as_deref()
        .and_then(|bundle| add_sources(args, bundle));
    report(args, &outcome, added)?;
    let is_zero = args.exit_zero || args.pid.is_some() || interrupt.flag().load(Ordering::Relaxed);
    Ok(if is_zero {
        ExitCode::SUCCESS
    } else {
        exit_code(outcome.ending)
    })
}

/// Returns the program's exit status, or 128 and the signal that ended it, as shells do.
fn exit_code(ending: Ending) -> ExitCode {
    let status = match ending {
        Ending::Running => 0,
        Ending::Exited(status) => status,
        Ending::Killed(signal) => 128_i32.saturating_add(signal),
    };
    // The kernel keeps the low eight bits of a status.
    ExitCode::from(status.to_le_bytes()[0])
}

/// Adds source files to the new bundle, and returns their number. A failure does not cost the
/// recording.
fn add_sources(args: &Record, bundle: &Path) -> Option<usize> {
    let selection = Selection::of(&args.sources)?;
    match sources::add(bundle, selection) {
        Ok(found) => {
            for problem in &found.problems {
                terminal::print_error(problem);
            }
            Some(found.count)
        }
        Err(failure) => {
            let message = failure.message();
            terminal::print_error(&format!("the bundle has no source files: {message}"));
            Some(0)
        }
    }
}

/// The highest number in the name of a bundle.
const MAX_NUMBER: u32 = 9999;

/// Returns `PROG.bundle` or `PID.bundle` in the current directory, or the first name with a number
/// that no file has.
fn default_output(args: &Record) -> PathBuf {
    let name = match (args.pid, args.program.first()) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(program)) => Path::new(program)
            .file_name()
            .unwrap_or(program)
            .to_string_lossy()
            .into_owned(),
        (None, None) => "backtrail".to_owned(),
    };
    let is_free = |path: &Path| args.overwrite || path.symlink_metadata().is_err();
    let free = free_name(Path::new(""), &name, is_free);
    free.unwrap_or_else(|| PathBuf::from(format!("{name}.bundle")))
}

/// Returns `NAME.bundle` in a folder, or the first name with a number that is free.
fn free_name(folder: &Path, name: &str, is_free: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let first = folder.join(format!("{name}.bundle"));
    let numbered = |number| folder.join(format!("{name}.{number}.bundle"));
    std::iter::once(first)
        .chain((2..=MAX_NUMBER).map(numbered))
        .find(|path| is_free(path))
}

/// Returns the kind of an ending, and the status or signal.
fn ending_parts(ending: Ending) -> (&'static str, Option<i32>) {
    match ending {
        Ending::Exited(status) => ("exited", Some(status)),
        Ending::Killed(signal) => ("killed", Some(signal)),
        Ending::Running => ("running", None),
    }
}

fn write_golden(dir: &Path, outcome: &Outcome) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format_args!("cannot write to {}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    for golden in &outcome.golden {
        let bytes: Vec<u8> = golden
            .instructions
            .iter()
            .flat_map(|at| at.0.to_le_bytes())
            .collect();
        std::fs::write(dir.join(format!("{}.ips", golden.tid)), bytes).map_err(failed)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct RecordReport<'a> {
    bundle: Option<&'a Path>,
    ending: &'static str,
    status: Option<i32>,
    threads: usize,
    instructions: Option<u64>,
    bytes: u64,
    dropped: u64,
    gaps: u64,
    /// The number of source files that were added.
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<usize>,
}

fn report(args: &Record, outcome: &Outcome, sources: Option<usize>) -> Result<(), Failure> {
    let (ending, status) = ending_parts(outcome.ending);
    let recorded = RecordReport {
        bundle: outcome.bundle.as_deref(),
        ending,
        status,
        threads: outcome.threads,
        instructions: outcome.instructions,
        bytes: outcome.bytes,
        dropped: outcome.dropped,
        gaps: outcome.gaps,
        sources,
    };
    if args.json {
        let mut output = Output::new();
        output.json("backtrail-record/1", &recorded)?;
        output.finish()?;
    } else {
        summarize(args, outcome, &recorded, &mut std::io::stderr().lock())?;
    }
    match &outcome.failure {
        Some(reason) => Err(Failure::failed(format_args!("recording ended early: {reason}"))),
        None => Ok(()),
    }
}

/// Prints a summary of the recording to standard error, because standard output is the program's.
fn summarize(
    args: &Record,
    outcome: &Outcome,
    recorded: &RecordReport<'_>,
    output: &mut impl Write,
) -> std::io::Result<()> {
    let ending = match outcome.ending {
        Ending::Exited(status) => format!("the program exited with status {status}"),
        Ending::Killed(signal) => {
            let place = outcome.bundle.as_deref().and_then(crash_place::read);
            let place = place.map_or_else(String::new, |place| format!(" in {}", visible(&place)));
            format!("{} killed the program{place}", signal::name(signal))
        }
        Ending::Running if args.pid.is_some() => "recording ended; the process still runs".to_owned(),
        Ending::Running => "recording ended, and so did the program".to_owned(),
    };
    let RecordReport {
        threads,
        instructions,
        bytes,
        dropped,
        ..
    } = recorded;
    let instructions = instructions.map_or_else(String::new, |count| format!("{count} instructions of "));
    writeln!(
        output,
        "{ending}: {instructions}{threads} thread(s) in {bytes} bytes of trace"
    )?;
    if *dropped > 0 {
        writeln!(
            output,
            "the ring buffer overwrote {dropped} older bytes (see --ring and --full)"
        )?;
    }
    if outcome.gaps > 0 {
        writeln!(
            output,
            "{} gap(s) in the trace; list them with `backtrail check`",
            outcome.gaps
        )?;
    }
    if let Some(count) = recorded.sources {
        writeln!(output, "the bundle has {count} source file(s)")?;
    }
    if let Some(bundle) = &outcome.bundle {
        writeln!(output, "next: backtrail debug {}", shell::path(bundle))?;
    }
    Ok(())
}

/// Shows the progress of recording on a terminal, after one second.
#[derive(Default)]
struct StatusLine {
    since: Option<Instant>,
    shown: bool,
}

impl StatusLine {
    fn update(&mut self, progress: Progress) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < Duration::from_secs(1) || !std::io::stderr().is_terminal() {
            return;
        }
        self.shown = true;
        let Progress {
            instructions,
            bytes,
            threads,
        } = progress;
        let instructions = match instructions {
            0 => String::new(),
            count => format!("{count} instructions, "),
        };
        eprint!("\r\x1b[Krecording: {instructions}{bytes} bytes, {threads} thread(s); Ctrl-C stops it ");
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
