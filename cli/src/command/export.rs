//! `backtrail export`.

use crate::args::{Export, ExportClock, ExportFormat};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::output_file;
use crate::progress::Bar;
use crate::terminal;
use backtrail_bundle::Overwrite;
use backtrail_console::commands;
use backtrail_debugger::navigator::Navigator;
use backtrail_decoder::{Progress, Watch};
use backtrail_export::{Clock, Estimate, Format, Options, Timeline};
use backtrail_pt::Tid;
use std::io::IsTerminal;

/// The size of an export in bytes above which a warning comes first. The viewers in browsers keep a
/// file as one text, of at most 512 MiB in Chrome.
const LARGE: u64 = 256 << 20;

/// Writes a trace in the format of another tool.
pub fn run(args: &Export) -> Result<(), Failure> {
    let format = match args.format {
        ExportFormat::Perfetto => Format::Perfetto,
        ExportFormat::Chrome => Format::Chrome,
        ExportFormat::Firefox => Format::Firefox,
        ExportFormat::Speedscope => Format::Speedscope,
        ExportFormat::Folded => Format::Folded,
        ExportFormat::Pprof => Format::Pprof,
        ExportFormat::Lldb => return lldb(args),
    };
    if args.output.is_none() && format.is_binary() && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "this format is binary; write it to a file with -o, or redirect the output",
        ));
    }
    if let Some(path) = &args.output {
        output_file::refuse_existing(path, args.overwrite)?;
    }
    let interrupt = Interrupt::install();
    let session = open::session(&args.bundle, &open::options(&args.decode), &interrupt)?;
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    let mut navigator = Navigator::new(session)?;
    let thread = args.thread.map(Tid);
    let mut position = |text: &Option<String>| match text {
        Some(text) => commands::position_in(&mut navigator, thread, text, &watch).map(Some),
        None => Ok(None),
    };
    let options = Options {
        thread,
        from: position(&args.from)?,
        to: position(&args.to)?,
        depth: args.depth,
        clock: match args.clock {
            ExportClock::Auto => Clock::Auto,
            ExportClock::Time => Clock::Time,
            ExportClock::Instructions => Clock::Instructions,
        },
    };
    let timeline = Timeline::new(navigator.session(), &options, &watch)?;
    if let Some(estimate) = timeline
        .estimate(format, &watch)?
        .filter(|size| size.bytes > LARGE)
    {
        terminal::print_error(&format!(
            "warning: {}; --from, --to, --thread and --depth export less",
            describe(estimate)
        ));
    }
    match &args.output {
        Some(path) => output_file::write_atomically(path, args.overwrite, |out| {
            Ok(format.write(&timeline, out, &watch)?)
        }),
        None => {
            let mut output = Output::new();
            match format.is_binary() || !std::io::stdout().is_terminal() {
                true => format.write(&timeline, &mut output.bytes(), &watch)?,
                false => format.write(&timeline, &mut output, &watch)?,
            }
            output.finish()
        }
    }
}

/// Returns the size of an export in words.
fn describe(estimate: Estimate) -> String {
    let millions = estimate.calls as f64 / 1e6;
    let size = match estimate.bytes >> 20 {
        mib if mib < 1024 => format!("{mib} MiB"),
        mib => format!("{:.1} GiB", mib as f64 / 1024.0),
    };
    format!("the export has {millions:.1} million calls, about {size}")
}

/// Writes the bundle as a directory at the output path. LLDB loads every bundle directory.
fn lldb(args: &Export) -> Result<(), Failure> {
    let Some(output) = &args.output else {
        return Err(Failure::usage(
            "the output is a bundle directory; name it with -o",
        ));
    };
    let parts = args.thread.is_some() || args.from.is_some() || args.to.is_some() || args.depth.is_some();
    if parts {
        return Err(Failure::usage(
            "--thread, --from, --to and --depth do not apply to --format lldb, which exports whole traces",
        ));
    }
    let interrupt = Interrupt::install();
    Ok(backtrail_bundle::copy(
        &args.bundle,
        output,
        Overwrite::from_flag(args.overwrite),
        &interrupt.cancel_token(),
    )?)
}
