//! The README's example, with the installed debugger.

use super::{Root, WORK};
use crate::Failure;
use crate::dist::{cannot, output_of};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Files that the package brings.
pub const FILES: &[&str] = &[
    "usr/share/man/man1/backtrail-record.1.gz",
    "usr/share/bash-completion/completions/backtrail",
    "usr/lib/systemd/system/backtrail-collect.service",
    "etc/backtrail/collect.toml",
];
/// Lines of the README's example. Addresses and times differ from run to run.
const EXPECTED: &[&str] = &[
    "#0  post (account=0x0, amount=-10) at ledger.c:64",
    " in end_of_day () at ledger.c:120",
    " in close_account at ledger.c:44",
    // The value is known in some builds only.
    "Breakpoint 1, close_account (number=",
    " in settle () at ledger.c:75",
    "settle () at ledger.c:74",
    "22× →74\t    if (account->balance <= account->minimum)",
    " 2× 75\t        close_account(number);",
];

/// Builds the README's program in the folder of the test.
///
/// The program is static: the bare Debian has no compiler, and its glibc may be older than the
/// one here.
pub fn prepare(work: &Path) -> Result<(), Failure> {
    let source = Path::new("tests/fixtures/programs/ledger.c");
    fs::copy(source, work.join("ledger.c")).map_err(|error| cannot("copy", source, &error))?;
    let map = format!("-ffile-prefix-map={}=/{WORK}", work.display());
    output_of(
        Command::new("cc")
            .args(["-g", "-Og", "-static", "-o", "ledger", "ledger.c", &map])
            .current_dir(work),
    )?;
    Ok(())
}

/// Runs the README's example.
pub fn run(root: &Root) -> Result<(), Failure> {
    // The daemon's own check of its configuration.
    root.run(&[
        "backtrail",
        "collect",
        "--config",
        "/etc/backtrail/collect.toml",
        "--print-config",
    ])?;
    let recorded = root.run(&[
        "sh",
        "-c",
        // The status is the program's: SIGSEGV killed it.
        "cd /package-test && { backtrail record -o ledger.bundle -- ./ledger 2>&1; test $? -eq 139; }",
    ])?;
    let mut debug = vec!["backtrail", "debug", "/package-test/ledger.bundle", "--batch"];
    let readme =
        fs::read_to_string("README.md").map_err(|error| cannot("read", Path::new("README.md"), &error))?;
    for command in commands(&readme) {
        debug.extend(["-e", command]);
    }
    let shown = root.run(&debug)?;
    let missing = EXPECTED.iter().find(|line| !shown.contains(**line));
    match missing {
        Some(line) => Err(format!("the example does not print '{line}':\n{recorded}{shown}")),
        None if !recorded.contains("SIGSEGV killed the program") => Err(format!("no crash: {recorded}")),
        None => Ok(()),
    }
}

/// Returns the debugger's commands in the README's example.
fn commands(readme: &str) -> Vec<&str> {
    readme
        .lines()
        .filter_map(|line| line.strip_prefix("    (backtrail) "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_has_commands_of_the_debugger() {
        let readme = include_str!("../../../../README.md");
        let commands = commands(readme);
        assert!(commands.contains(&"break close_account"), "{commands:?}");
        assert_eq!(commands.last(), Some(&"list"));
    }
}
