//! Our answers and GDB's on the same core.

use super::Bundle;
use std::path::Path;
use std::process::Command;

/// What stands before each answer in GDB's output.
const MARK: &str = ">>> ";

/// GDB is there; says so if not.
pub fn have_gdb() -> bool {
    let found = Command::new("gdb").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no gdb on this machine");
    }
    found
}

/// The lines behind each mark; which number a value got does not matter.
fn answers(transcript: &str, mark: &str) -> Vec<(String, Vec<String>)> {
    let mut answers: Vec<(String, Vec<String>)> = Vec::new();
    for line in transcript.lines() {
        if let Some(command) = line.strip_prefix(mark) {
            answers.push((command.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = answers.last_mut() {
            let numbered = line.strip_prefix('$').and_then(|rest| rest.split_once(" = "));
            lines.push(match numbered {
                Some((number, value)) if number.parse::<u32>().is_ok() => format!("$ = {value}"),
                _ => line.to_owned(),
            });
        }
    }
    answers
}

/// What our debugger answers to each command.
pub fn ours(bundle: &Bundle, commands: &[&str]) -> Vec<(String, Vec<String>)> {
    answers(&bundle.debug(commands), "(backtrail) ")
}

/// What GDB answers on the core of the bundle.
pub fn by_gdb(executable: &Path, bundle: &Bundle, commands: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-iex", "set debuginfod enabled off"])
        .args(["-iex", "set auto-load safe-path /"])
        .args(["-ex", "set print type methods off", "-ex"])
        .arg(format!("file {}", executable.display()))
        .arg("-ex")
        .arg(format!("core-file {}", bundle.path.join("core").display()));
    for command in commands {
        gdb.args(["-ex", &format!("echo {MARK}{command}\\n"), "-ex", command]);
    }
    let output = gdb.output().unwrap();
    answers(&String::from_utf8_lossy(&output.stdout), MARK)
}
