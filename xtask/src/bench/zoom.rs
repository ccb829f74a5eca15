//! `bench zoom`: pictures a second of a flame graph with 100 000 frames while it zooms in Chromium.
//!
//! `tests/web/zoom.mjs` makes the page from the one that the binaries contain, and measures.

use super::machine;
use crate::node::Node;
use crate::{Failure, readers, shell, vscode};
use std::path::PathBuf;
use std::process::Command;

/// The script that measures.
const SCRIPT: &str = "tests/web/zoom.mjs";

/// Measures for some seconds a tree, and prints the table.
pub fn run(seconds: u32) -> Result<(), Failure> {
    let installed = vscode::install()?;
    let browser = browser()?;
    println!(
        "`cargo xtask bench zoom` on {}; load before {}.\n",
        machine::line(),
        machine::load()
    );
    let node = Node::among(&readers::python()?).program();
    let mut script = Command::new(node);
    script
        .arg(SCRIPT)
        .env("BACKTRAIL_CHROMIUM", browser)
        .env("BACKTRAIL_SECONDS", seconds.to_string())
        .envs(installed.variables());
    shell::run(&mut script)
}

/// Returns the path of Chromium.
fn browser() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    let found = programs.find(|program| program.is_file());
    found.ok_or_else(|| "cannot find chromium; install Debian's package".to_owned())
}
