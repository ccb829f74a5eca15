//! `backtrail profile record`.

use super::record_options::{sampled_events, stack_method};
use crate::args::ProfileRecord;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::output_file;
use crate::shell;
use backtrail_profiler::{ProgramEnd, Progress, RecordOptions, RecordingOutput, Summary, Target, record};
use backtrail_pt::Pid;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Samples until the target ends, the time is over, or Ctrl-C. Returns the exit status of the
/// program, or 0 if the recorder ended it.
pub fn run(args: &ProfileRecord) -> Result<ExitCode, Failure> {
    output_file::refuse_existing(&args.output, args.overwrite)?;
    let interrupt = Interrupt::install();
    let is_terminal = std::io::stderr().is_terminal();
    let mut progress = |progress: Progress| {
        if is_terminal {
            show(progress);
        }
    };
    let summary = record(&options(args)?, interrupt.flag(), &mut progress);
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    let summary = summary?;
    report(args, &summary)?;
    let is_over = args
        .duration
        .is_some_and(|duration| summary.progress.elapsed >= duration);
    Ok(match is_over || interrupt.flag().load(Ordering::Relaxed) {
        true => ExitCode::SUCCESS,
        false => exit_code(summary.program),
    })
}

/// Returns the exit status of a program, or 128 and the signal that killed it, as shells do.
fn exit_code(end: Option<ProgramEnd>) -> ExitCode {
    let status = match end {
        None => 0,
        Some(ProgramEnd::Exited(status)) => status,
        Some(ProgramEnd::Killed(signal)) => 128_i32.saturating_add(signal),
    };
    // The kernel keeps the low eight bits of a status.
    ExitCode::from(status.to_le_bytes()[0])
}

fn options(args: &ProfileRecord) -> Result<RecordOptions, Failure> {
    Ok(RecordOptions {
        target: match (args.pid, &args.cgroup) {
            (Some(pid), _) => Target::Process(Pid(pid)),
            (None, Some(path)) => Target::Cgroup(path.clone()),
            (None, None) if args.all => Target::All,
            (None, None) => Target::Program(args.program.clone()),
        },
        events: sampled_events(&args.event, args.pid)?,
        frequency: args.freq,
        stack_method: stack_method(args.stacks),
        duration: args.duration,
        output: RecordingOutput::File {
            path: args.output.clone(),
            overwrite: args.overwrite,
            max_bytes: args.max_size,
        },
        cpu_budget: args.cpu_budget,
    })
}

fn show(progress: Progress) {
    let Progress {
        elapsed,
        samples,
        lost,
        bytes,
        ..
    } = progress;
    let lost = match lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    let seconds = elapsed.as_secs();
    eprint!("\r\x1b[Kprofiling for {seconds} s: {samples} samples{lost}, {bytes} bytes; Ctrl-C stops it ");
}

#[derive(Serialize)]
struct Report<'a> {
    file: &'a Path,
    seconds: f64,
    samples: u64,
    lost: u64,
    bytes: u64,
    stacks: u64,
    incomplete: u64,
    walked_in_kernel: u64,
    no_ebpf: Option<&'a str>,
    no_priority: Option<&'a str>,
    ending: Option<&'static str>,
    status: Option<i32>,
    notes: &'a [String],
}

fn report(args: &ProfileRecord, summary: &Summary) -> Result<(), Failure> {
    let Progress {
        elapsed,
        samples,
        lost,
        bytes,
        ..
    } = summary.progress;
    let (ending, status) = match summary.program {
        None => (None, None),
        Some(ProgramEnd::Exited(status)) => (Some("exited"), Some(status)),
        Some(ProgramEnd::Killed(signal)) => (Some("killed"), Some(signal)),
    };
    if args.json {
        let mut output = Output::new();
        let report = Report {
            file: &args.output,
            seconds: elapsed.as_secs_f64(),
            samples,
            lost,
            bytes,
            stacks: summary.stacks,
            incomplete: summary.incomplete,
            walked_in_kernel: summary.walked,
            no_ebpf: summary.no_ebpf.as_deref(),
            no_priority: summary.no_priority.as_deref(),
            ending,
            status,
            notes: &summary.notes,
        };
        output.json("backtrail-profile-record/1", &report)?;
        return output.finish();
    }
    // Standard output is the program's.
    let mut out = std::io::stderr().lock();
    let ending = match (ending, status) {
        (Some("exited"), Some(status)) => format!("the program exited with status {status}: "),
        (Some(_), Some(signal)) => format!("signal {signal} killed the program: "),
        _ => String::new(),
    };
    let seconds = elapsed.as_secs_f64();
    writeln!(
        out,
        "{ending}{samples} samples in {seconds:.1} s, {bytes} bytes, {lost} records lost"
    )?;
    if summary.incomplete > 0 {
        writeln!(
            out,
            "{} of {} stacks of programs do not reach the start of their thread",
            summary.incomplete, summary.stacks
        )?;
    }
    writeln!(out, "{}", walked_stacks(summary))?;
    if let (Some(reason), 1..) = (&summary.no_priority, lost) {
        writeln!(
            out,
            "the reader of samples had no real-time priority, which loses fewer records: {reason}"
        )?;
    }
    for note in &summary.notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(
        out,
        "next: backtrail profile report {}",
        shell::path(&args.output)
    )?;
    Ok(())
}

/// Says how stacks of programs were walked.
fn walked_stacks(summary: &Summary) -> String {
    let Summary { stacks, walked, .. } = summary;
    match &summary.no_ebpf {
        None => format!("eBPF walked {walked} of {stacks} stacks of programs; the others were copied"),
        Some(reason) => format!("the kernel copied {stacks} stacks of programs; no eBPF: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_that_of_the_program() {
        let cases = [
            (None, 0),
            (Some(ProgramEnd::Exited(7)), 7),
            (Some(ProgramEnd::Killed(11)), 139),
        ];
        for (end, status) in cases {
            assert_eq!(exit_code(end), ExitCode::from(status));
        }
    }
}
