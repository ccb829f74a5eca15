//! `record --only` and `--keep`: one bundle for each process that is kept.

use super::{StatusLine, add_sources, crash_place, exit_code};
use crate::args::{Keep, Record};
use crate::command::last_word::KillMonitor;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::shell;
use backtrail_bundle::manifest::{self, Crash};
use backtrail_bundle::{Overwrite, Writer};
use backtrail_console::output::visible;
use backtrail_debugger::signal;
use backtrail_pt::Pid;
use backtrail_recorder::{
    CrashDraft, CrashSink, EndedProcess, Ending, Error, Memory, Outcome, Output as Destination, Progress,
    RecordOptions, SavedCrash, record,
};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// The number of crashes whose places are shown.
const MAX_PLACES: usize = 20;

/// Records the processes of a command, and returns the exit status of its first process.
pub(super) fn run(args: &Record, status: &mut StatusLine) -> Result<ExitCode, Failure> {
    let mut kept = KeptProcesses::new(args)?;
    let mut monitor = KillMonitor::begin(None);
    let interrupt = Interrupt::install();
    let mut started = |pid: Pid| monitor.started(pid);
    let mut progress = |progress: Progress| status.update(progress);
    let outcome = record(RecordOptions {
        started: Some(&mut started),
        progress: Some(&mut progress),
        ..super::options::options(args, Destination::Crashes(&mut kept), interrupt.flag())
    });
    status.clear();
    let outcome = outcome?;
    for process in &kept.kept {
        add_sources(args, &process.bundle);
    }
    report(args, &outcome, kept)?;
    let is_zero = args.exit_zero || interrupt.flag().load(Ordering::Relaxed);
    Ok(if is_zero {
        ExitCode::SUCCESS
    } else {
        exit_code(outcome.ending)
    })
}

/// A process whose bundle is kept.
#[derive(Debug, Serialize)]
struct KeptProcess {
    name: String,
    pid: u32,
    ending: &'static str,
    status: Option<i32>,
    bundle: PathBuf,
}

/// The destination of the bundles.
struct KeptProcesses {
    folder: PathBuf,
    keep: Keep,
    overwrite: bool,
    created_by: String,
    /// The names that this recording has used.
    used: HashSet<PathBuf>,
    /// The processes whose bundles are being written.
    drafts: HashMap<Pid, KeptProcess>,
    kept: Vec<KeptProcess>,
    /// Sentences about bundles that could not be written.
    failures: Vec<String>,
}

impl KeptProcesses {
    fn new(args: &Record) -> Result<Self, Failure> {
        let folder = args.output.clone().unwrap_or_default();
        if let Some(folder) = &args.output {
            std::fs::create_dir_all(folder).map_err(|error| {
                Failure::failed(format_args!("cannot create {}: {error}", folder.display()))
            })?;
        }
        Ok(Self {
            folder,
            keep: args.keep.unwrap_or(Keep::All),
            overwrite: args.overwrite,
            created_by: format!("record --engine {}", super::options::engine(args)),
            used: HashSet::new(),
            drafts: HashMap::new(),
            kept: Vec::new(),
            failures: Vec::new(),
        })
    }

    /// Begins the bundle of a process.
    fn begin(&mut self, pid: Pid, program: &str, ending: Ending) -> Option<Writer> {
        // A name is one part of a path.
        let name = match program {
            "" | "." | ".." => "process".to_owned(),
            program => program.replace(['/', '\0'], "_"),
        };
        let (used, overwrite) = (&self.used, self.overwrite);
        let is_free = |path: &Path| !used.contains(path) && (overwrite || path.symlink_metadata().is_err());
        let bundle = super::free_name(&self.folder, &name, is_free);
        let created = match &bundle {
            Some(bundle) => {
                Writer::create(bundle, Overwrite::from_flag(overwrite)).map_err(|error| error.to_string())
            }
            None => Err(format!("all names like {name}.bundle are in use")),
        };
        match (created, bundle) {
            (Ok(writer), Some(bundle)) => {
                self.used.insert(bundle.clone());
                let (ending, status) = super::ending_parts(ending);
                let kept = KeptProcess {
                    name: program.to_owned(),
                    pid: pid.0,
                    ending,
                    status,
                    bundle,
                };
                self.drafts.insert(pid, kept);
                Some(writer)
            }
            (created, _) => {
                let reason = created.err().unwrap_or_default();
                self.fail(pid, &reason);
                None
            }
        }
    }

    fn fail(&mut self, pid: Pid, reason: &str) {
        self.drafts.remove(&pid);
        self.failures.push(format!("process {pid} is not kept: {reason}"));
    }
}

impl CrashSink for KeptProcesses {
    fn process_began(&mut self, _pid: Pid) {}

    fn process_ended(&mut self, _pid: Pid) {}

    fn crashed(&mut self, crash: &Crash, name: &str, program: &str) -> Option<CrashDraft> {
        let program = if program.is_empty() { name } else { program };
        let writer = self.begin(crash.pid, program, Ending::Killed(crash.signal))?;
        let memory = Memory::UpTo(u64::MAX);
        Some(CrashDraft { writer, memory })
    }

    fn ended(&mut self, process: &EndedProcess<'_>) -> Option<Writer> {
        let is_kept = match (self.keep, process.ending) {
            (Keep::All, _) => true,
            // A program that hangs is stopped by the end of the recording.
            (Keep::Failed, ending) => ending != Ending::Exited(0),
        };
        is_kept
            .then(|| self.begin(process.pid, process.program, process.ending))
            .flatten()
    }

    fn save(&mut self, saved: SavedCrash) {
        let SavedCrash { writer, mut manifest } = saved;
        let Some(pid) = manifest.processes.first().map(|process| process.pid) else {
            return;
        };
        let Some(kept) = self.drafts.remove(&pid) else {
            return;
        };
        // Only the collector knows the rest of this part.
        if let Some(collected) = manifest.meta.collected.take() {
            manifest.meta.notes.extend(collected.missing);
        }
        manifest.meta.created_by = Some(self.created_by.clone());
        if let Some(crash) = manifest.meta.crash {
            manifest.meta.ending = Some(manifest::Ending::Killed(crash.signal));
            manifest.meta.crash = Some(crash).filter(|crash| manifest::is_crash(crash.signal));
        }
        match writer.finish(&manifest) {
            Ok(_) => self.kept.push(kept),
            Err(error) => self.fail(pid, &error.to_string()),
        }
    }

    fn failed(&mut self, pid: Pid, error: Error) {
        self.fail(pid, &error.to_string());
    }
}

#[derive(Serialize)]
struct ProcessesReport<'a> {
    ending: &'static str,
    status: Option<i32>,
    /// The number of processes that ran.
    processes: usize,
    /// The number of those whose programs were not recorded.
    unrecorded: usize,
    /// The number of recorded processes whose traces were dropped.
    dropped: usize,
    kept: &'a [KeptProcess],
    failures: &'a [String],
}

fn report(args: &Record, outcome: &Outcome, kept: KeptProcesses) -> Result<(), Failure> {
    let counts = outcome.processes;
    let (ending, status) = super::ending_parts(outcome.ending);
    let report = ProcessesReport {
        ending,
        status,
        processes: counts.recorded + counts.unrecorded,
        unrecorded: counts.unrecorded,
        dropped: counts.recorded.saturating_sub(kept.kept.len()),
        kept: &kept.kept,
        failures: &kept.failures,
    };
    if args.json {
        let mut output = Output::new();
        output.json("backtrail-record-processes/1", &report)?;
        output.finish()?;
    } else {
        summarize(outcome, &report, &mut std::io::stderr().lock())?;
    }
    match &outcome.failure {
        Some(reason) => Err(Failure::failed(format_args!("recording ended early: {reason}"))),
        None => Ok(()),
    }
}

/// Prints the counts, and a table of the kept processes.
fn summarize(
    outcome: &Outcome,
    report: &ProcessesReport<'_>,
    output: &mut impl Write,
) -> std::io::Result<()> {
    let ending = match outcome.ending {
        Ending::Exited(status) => format!("the program exited with status {status}"),
        Ending::Killed(signal) => format!("{} killed the program", signal::name(signal)),
        Ending::Running => "recording ended, and so did the program".to_owned(),
    };
    let unrecorded = match report.unrecorded {
        0 => String::new(),
        count => format!("{count} not recorded (--only), "),
    };
    writeln!(
        output,
        "{ending}: {} process(es) ran, {unrecorded}{} kept, {} dropped",
        report.processes,
        report.kept.len(),
        report.dropped
    )?;
    if report.unrecorded > 0 && report.unrecorded == report.processes {
        writeln!(
            output,
            "no process ran a program that --only names; NAME is that of an executable or script, without directories"
        )?;
    }
    for failure in report.failures {
        writeln!(output, "{}", visible(failure))?;
    }
    let mut rows = vec![["NAME", "PID", "ENDING", "BUNDLE"].map(str::to_owned)];
    let mut places = 0;
    for process in report.kept {
        let ending = match (process.ending, process.status) {
            ("killed", Some(number)) => {
                places += 1;
                let place = (places <= MAX_PLACES).then(|| crash_place::read(&process.bundle));
                let place = place.flatten().map(|place| format!(" in {}", visible(&place)));
                format!("{}{}", signal::name(number), place.unwrap_or_default())
            }
            (_, Some(status)) => format!("status {status}"),
            (ending, None) => ending.to_owned(),
        };
        rows.push([
            visible(&process.name).into_owned(),
            process.pid.to_string(),
            ending,
            shell::path(&process.bundle),
        ]);
    }
    if rows.len() > 1 {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let (name, pid, ending) = (width(0), width(1), width(2));
        for [row_name, row_pid, row_ending, bundle] in &rows {
            writeln!(
                output,
                "  {row_name:<name$}  {row_pid:>pid$}  {row_ending:<ending$}  {bundle}"
            )?;
        }
    }
    let is_crash = |process: &&KeptProcess| process.ending == "killed";
    if let Some(next) = report.kept.iter().find(is_crash).or(report.kept.first()) {
        writeln!(output, "next: backtrail debug {}", shell::path(&next.bundle))?;
    }
    Ok(())
}
