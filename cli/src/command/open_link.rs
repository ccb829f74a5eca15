//! `backtrail open`: opens the link of a hub's crash in VS Code.

use crate::args::OpenLink;
use crate::exit::Failure;
use crate::hub::settings;
use crate::output::Output;
use backtrail_report::client::CrashLink;
use std::io::Write;
use std::process::{Command, Stdio};

/// Starts VS Code at the crash. Prints the link for VS Code if no program opens it.
pub fn run(args: &OpenLink) -> Result<(), Failure> {
    let link = CrashLink::parse(&args.link, args.insecure_http || settings::allows_http())?;
    let link = link.to_vscode();
    let is_opened = !args.print && (starts("code", &["--open-url", &link]) || starts("xdg-open", &[&link]));
    let mut output = Output::new();
    if !is_opened {
        writeln!(output, "{link}")?;
    }
    output.finish()
}

/// Runs a program, and returns whether it succeeded.
fn starts(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
