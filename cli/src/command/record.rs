//! `backtrail record`.

mod service;

use super::last_word::Witness;
use crate::args::{self, Record, RecordEngine, Source};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::shell;
use backtrail_bundle::Overwrite;
use backtrail_pt::Pid;
use backtrail_recorder::{
    Ending, Engine, Outcome, Output as Destination, Pin, Progress, RecordOptions, Target, record,
};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Records a program until it ends, crashes, Ctrl-C or `--for`.
pub fn run(args: &Record) -> Result<(), Failure> {
    if args.source == Source::Hardware {
        return Err(Failure::failed(
            "recording with Intel PT hardware is not built yet; record in software, or import what perf recorded",
        ));
    }
    if args.daemon {
        return service::run(args);
    }
    let mut witness = Witness::begin(args.pid);
    let interrupt = Interrupt::install();
    let mut status = StatusLine::default();
    let mut progress = |progress: Progress| status.update(progress);
    let destination = Destination::Bundle {
        path: args.output.clone().unwrap_or_else(|| default_output(args)),
        overwrite: Overwrite::asked(args.overwrite),
    };
    let mut started = |pid: Pid| witness.started(pid);
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
    report(args, &outcome)
}

/// Returns the recording options of the command line.
fn options<'a>(args: &Record, output: impl Into<Destination<'a>>, stop: &'a AtomicBool) -> RecordOptions<'a> {
    let target = match args.pid {
        Some(pid) => Target::Processes(vec![Pid(pid)]),
        None => Target::Command(args.program.clone()),
    };
    RecordOptions {
        ring: if args.full {
            None
        } else {
            Some(usize::try_from(args.ring).unwrap_or(usize::MAX))
        },
        engine: match args.engine {
            // Only steps are counted.
            RecordEngine::Translate if args.golden.is_none() => Engine::Translate,
            RecordEngine::Translate | RecordEngine::Step => Engine::Step,
        },
        pin: match args.pin {
            args::Pin::Auto => Pin::Auto,
            args::Pin::Together => Pin::Together,
            args::Pin::Off => Pin::Off,
        },
        cache: args.cache,
        follow: !args.no_follow,
        randomize_addresses: !args.no_aslr,
        compress_returns: !args.no_compress_returns,
        duration: args.duration,
        ..RecordOptions::new(target, output, stop)
    }
}

/// `PROG.bundle` or `PID.bundle` in the current folder.
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
    PathBuf::from(format!("{name}.bundle"))
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
struct Recorded<'a> {
    bundle: Option<&'a Path>,
    ending: &'static str,
    status: Option<i32>,
    threads: usize,
    instructions: Option<u64>,
    bytes: u64,
    dropped: u64,
    gaps: u64,
}

fn report(args: &Record, outcome: &Outcome) -> Result<(), Failure> {
    let (ending, status) = match outcome.ending {
        Ending::Exited(status) => ("exited", Some(status)),
        Ending::Killed(signal) => ("killed", Some(signal)),
        Ending::Running => ("running", None),
    };
    let recorded = Recorded {
        bundle: outcome.bundle.as_deref(),
        ending,
        status,
        threads: outcome.threads,
        instructions: outcome.instructions,
        bytes: outcome.bytes,
        dropped: outcome.dropped,
        gaps: outcome.gaps,
    };
    if args.json {
        let mut output = Output::new();
        output.json("backtrail-record/1", &recorded)?;
        output.finish()?;
    } else {
        summarize(args, outcome, &recorded, &mut std::io::stderr().lock())?;
    }
    match &outcome.failure {
        Some(why) => Err(Failure::failed(format_args!("recording ended early: {why}"))),
        None => Ok(()),
    }
}

/// Prints a summary of the recording on standard error, because standard output is the program's.
fn summarize(
    args: &Record,
    outcome: &Outcome,
    recorded: &Recorded<'_>,
    output: &mut impl Write,
) -> std::io::Result<()> {
    let how = match outcome.ending {
        Ending::Exited(status) => format!("the program exited with status {status}"),
        Ending::Killed(signal) => format!("signal {signal} killed the program"),
        Ending::Running if args.pid.is_some() => "recording ended, the process runs on".to_owned(),
        Ending::Running => "recording ended, and the program with it".to_owned(),
    };
    let Recorded {
        threads,
        instructions,
        bytes,
        dropped,
        ..
    } = recorded;
    let instructions = instructions.map_or_else(String::new, |count| format!("{count} instructions of "));
    writeln!(
        output,
        "{how}: {instructions}{threads} thread(s) in {bytes} bytes of trace"
    )?;
    if *dropped > 0 {
        writeln!(
            output,
            "the ring kept the newest part; {dropped} older bytes were dropped (--ring, --full)"
        )?;
    }
    if outcome.gaps > 0 {
        writeln!(
            output,
            "{} gap(s) in the trace: `backtrail check` says where",
            outcome.gaps
        )?;
    }
    if let Some(bundle) = &outcome.bundle {
        writeln!(output, "next: backtrail debug {}", shell::path(bundle))?;
    }
    Ok(())
}

/// Says on a terminal, after a second, how far recording has come.
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
        eprint!("\r\x1b[Krecording: {instructions}{bytes} bytes, {threads} thread(s); Ctrl-C ends it ");
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
