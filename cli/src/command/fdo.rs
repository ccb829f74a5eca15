//! `backtrail fdo`.

mod report;

use crate::args::{Fdo, FdoFormat};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::progress::Bar;
use crate::{open, output_file, terminal};
use backtrail_decoder::{Progress, Watch};
use backtrail_export::fdo::{self, FdoBinary, LbrCounts};
use backtrail_profile::fdo::autofdo::SampleProfile;
use backtrail_profile::fdo::csspgo::{ContextOptions, ContextSampleProfile};
use backtrail_profile::fdo::{BranchProfile, BranchReport, ContextProfile, bolt, fdata};
use backtrail_profile::format::perf_data::is_perf_data;
use backtrail_profile::format::recording;
use backtrail_symbolizer::DebugSearch;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

/// Counts the branches of a binary in the inputs, and writes them for its next build.
pub fn run(args: &Fdo) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        output_file::refuse_existing(path, args.overwrite)?;
    }
    if args.json && args.format != FdoFormat::Report {
        return Err(Failure::usage("--json is for --format report only"));
    }
    if (args.all_contexts || args.max_context_depth.is_some()) && !needs_contexts(args) {
        return Err(Failure::usage(
            "--all-contexts and --max-context-depth are for --format csspgo only",
        ));
    }
    let interrupt = Interrupt::install();
    let mut search = DebugSearch::default();
    search.roots.splice(..0, args.decode.symfs.iter().cloned());
    let mut binary = FdoBinary::open(&args.binary, &search)
        .map_err(|error| Failure::failed(format_args!("{}: {error}", args.binary.display())))?;
    let needs_lines = !matches!(args.format, FdoFormat::Preagg | FdoFormat::Fdata);
    if matches!(args.format, FdoFormat::Autofdo | FdoFormat::Csspgo) {
        binary.read_probes().map_err(|error| {
            Failure::of(
                format_args!("{}: {error}", args.binary.display()),
                error.is_refused(),
            )
        })?;
    }
    if let Some(gap) = binary.debug_gap().filter(|_| needs_lines) {
        terminal::print_error(&format!(
            "warning: {}: {gap}; build it with -g to have all lines",
            args.binary.display()
        ));
    }
    let mut counts = Counts::default();
    for input in &args.inputs {
        let found = read(input, args, &binary, &interrupt)?;
        if found.branches.is_empty() {
            terminal::print_error(&format!(
                "warning: {} has no branch of {}, of the build in {}",
                input.display(),
                binary.name(),
                args.binary.display()
            ));
        }
        counts.branches.merge(&found.branches);
        counts.contexts.merge(&found.contexts);
    }
    let branches = &counts.branches;
    if branches.is_empty() {
        return Err(Failure::failed(format_args!(
            "no input has a branch of {}; is it the build that was recorded?",
            args.binary.display()
        )));
    }
    if branches.refused_ranges() > 0 {
        terminal::print_error(&format!(
            "warning: {} ranges of code were left out, because branches in them are missing",
            branches.refused_ranges()
        ));
    }
    match &args.output {
        Some(path) => {
            output_file::write_atomically(path, args.overwrite, |out| write(args, &counts, &binary, out))
        }
        None => {
            let mut output = Output::new();
            write(args, &counts, &binary, &mut output)?;
            output.finish()
        }
    }
}

/// The branches of the inputs.
#[derive(Default)]
struct Counts {
    branches: BranchProfile,
    /// The same with their calling contexts, if the format has them.
    contexts: ContextProfile,
}

fn needs_contexts(args: &Fdo) -> bool {
    args.format == FdoFormat::Csspgo
}

fn write(args: &Fdo, counts: &Counts, binary: &FdoBinary, out: &mut dyn Write) -> Result<(), Failure> {
    let branches = &counts.branches;
    match args.format {
        FdoFormat::Autofdo => {
            let text = SampleProfile::new(branches, binary).text();
            out.write_all(text.as_bytes())
                .map_err(backtrail_profile::Error::from)?;
        }
        FdoFormat::Csspgo => {
            let options = ContextOptions {
                keep_all: args.all_contexts,
                max_depth: args.max_context_depth,
            };
            let text = ContextSampleProfile::new(&counts.contexts, binary, options).text();
            out.write_all(text.as_bytes())
                .map_err(backtrail_profile::Error::from)?;
        }
        FdoFormat::Preagg => bolt::write_preaggregated(branches, out)?,
        FdoFormat::Fdata => fdata::write(branches, binary, out)?,
        FdoFormat::Report => {
            let report = BranchReport::new(branches, binary);
            let text = match args.json {
                true => report::json(&report)?,
                false => report::text(&report, args.limit),
            };
            out.write_all(text.as_bytes())
                .map_err(backtrail_profile::Error::from)?;
        }
    }
    Ok(())
}

/// Counts the branches in one input, whose first bytes decide what it is.
fn read(path: &Path, args: &Fdo, binary: &FdoBinary, interrupt: &Interrupt) -> Result<Counts, Failure> {
    let with_contexts = needs_contexts(args);
    let cannot =
        |error: std::io::Error| Failure::failed(format_args!("cannot read {}: {error}", path.display()));
    let of_profile = |error: backtrail_profile::Error| {
        Failure::of(format_args!("{}: {error}", path.display()), error.is_refused())
    };
    let of_lbr = |found: LbrCounts| {
        if with_contexts && !found.has_chains && !found.branches.is_empty() {
            terminal::print_error(&format!(
                "warning: {} has no call chains, so contexts begin where its branches do; record with \
                 --call-graph fp",
                path.display()
            ));
        }
        Counts {
            branches: found.branches,
            contexts: found.contexts,
        }
    };
    match kind(path).map_err(cannot)? {
        InputKind::PerfData => {
            let bytes = std::fs::read(path).map_err(cannot)?;
            let found = fdo::branches_of_perf_data(&bytes, binary, with_contexts);
            found.map(of_lbr).map_err(of_profile)
        }
        InputKind::Recording => {
            let bytes = std::fs::read(path).map_err(cannot)?;
            let found = fdo::branches_of_recording(&bytes, binary, with_contexts);
            found.map(of_lbr).map_err(of_profile)
        }
        InputKind::PerfScript => {
            let file = BufReader::new(File::open(path).map_err(cannot)?);
            let found = fdo::branches_of_script(file, binary, with_contexts);
            found.map(of_lbr).map_err(of_profile)
        }
        InputKind::Trace => {
            let session = open::session(path, &open::options(&args.decode), interrupt)?;
            let bar = Bar::default();
            let progress = |progress: Progress| bar.update(progress);
            let watch = Watch {
                cancel: interrupt.flag(),
                progress: &progress,
            };
            if with_contexts {
                let contexts = fdo::contexts_of_session(&session, binary, &watch)?;
                return Ok(Counts {
                    branches: contexts.without_contexts(),
                    contexts,
                });
            }
            Ok(Counts {
                branches: fdo::branches_of_session(&session, binary, &watch)?,
                contexts: ContextProfile::default(),
            })
        }
    }
}

/// The kind of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputKind {
    PerfData,
    PerfScript,
    /// A recording of the profiler.
    Recording,
    /// A bundle, packed or not.
    Trace,
}

fn kind(path: &Path) -> std::io::Result<InputKind> {
    if path.is_dir() {
        return Ok(InputKind::Trace);
    }
    let mut start = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut start)?;
    if is_perf_data(&start) {
        return Ok(InputKind::PerfData);
    }
    if start.starts_with(&recording::HEADER) {
        return Ok(InputKind::Recording);
    }
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~') || *byte >= 0x80;
    Ok(match !start.is_empty() && start.iter().all(is_text) {
        true => InputKind::PerfScript,
        false => InputKind::Trace,
    })
}
