//! `backtrail completions`.

use crate::args::{CommandLine, Completions};
use crate::exit::Failure;
use crate::output::Output;
use clap::CommandFactory;

/// Prints the completion script of the requested shell.
pub fn run(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "backtrail", &mut script);
    let mut output = Output::new();
    std::io::Write::write_all(&mut output, &script)?;
    output.finish()
}
