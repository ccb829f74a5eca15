//! `backtrail latency`.

use crate::args::Latency;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Bar;
use crate::terminal;
use backtrail_console::commands;
use backtrail_console::output::Text;
use backtrail_debugger::Navigator;
use backtrail_decoder::{Progress, Watch};

/// Prints how long the calls of each function took, by the debugger's `latency` and `slowest`.
pub fn run(args: &Latency) -> Result<(), Failure> {
    let mut options = open::options(&args.decode);
    options.main_calls = true;
    let interrupt = Interrupt::install();
    let session = open::session(&args.bundle, &options, &interrupt)?;
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    let mut navigator = Navigator::new(session)?;
    if let Some(tid) = args.thread {
        commands::execute(&mut navigator, &format!("thread {tid}"), &watch)?;
    }
    let color = terminal::has_color();
    let mut output = Output::new();
    for question in commands(args) {
        let answer = commands::execute(&mut navigator, &question, &watch)?;
        if args.json {
            output.json("backtrail-latency/1", &answer)?;
        } else {
            let mut text = Text::new(color);
            answer.render(&mut text);
            output.text(text)?;
        }
    }
    output.finish()
}

/// Returns the debugger commands to run.
fn commands(args: &Latency) -> impl Iterator<Item = String> {
    let unit = if args.instructions { " --instructions" } else { "" };
    args.functions.iter().flat_map(move |function| {
        let slowest = args
            .slowest
            .map(|count| format!("slowest {function} {count}{unit}"));
        std::iter::once(format!("latency {function}{unit}")).chain(slowest)
    })
}
