//! Our answers and GDB's on the same core.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Program, Variant, find};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The mark before each answer in GDB's output.
const MARK: &str = ">>> ";

/// Returns whether GDB is installed, or prints that it is missing.
pub fn have_gdb() -> bool {
    let found = Command::new("gdb").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no gdb on this machine");
    }
    found
}

/// Returns the lines after each mark, without the numbers of values.
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

/// Returns our debugger's answer to each command.
pub fn ours(bundle: &Bundle, commands: &[&str]) -> Vec<(String, Vec<String>)> {
    answers(&bundle.debug(commands), "(backtrail) ")
}

/// Returns the same, with debug files below a folder.
pub fn ours_with(bundle: &Bundle, symfs: &Path, commands: &[&str]) -> Vec<(String, Vec<String>)> {
    let folder = symfs.display().to_string();
    let mut options = vec!["--batch", "--symfs", &folder];
    options.extend(commands.iter().flat_map(|command| ["-e", command]));
    answers(&bundle.run(&["debug"], &options).stdout, "(backtrail) ")
}

/// Returns GDB's answers on the core of the bundle.
pub fn by_gdb(executable: &Path, bundle: &Bundle, commands: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-iex", "set debuginfod enabled off"])
        .args(["-iex", "set auto-load safe-path /"])
        .arg("-ex")
        .arg(format!("file {}", executable.display()))
        .arg("-ex")
        .arg(format!("core-file {}", bundle.path.join("core").display()));
    for command in commands {
        gdb.args(["-ex", &format!("echo {MARK}{command}\\n"), "-ex", command]);
    }
    let output = gdb.output().unwrap();
    answers(&String::from_utf8_lossy(&output.stdout), MARK)
}

/// Records a program of the table, with its whole history.
pub fn recorded(name: &str) -> Bundle {
    Bundle::recorded(find(name).unwrap(), Variant::Pie, &["--full"]).0
}

/// Checks that every answer equals GDB's, or the answer that `otherwise` lists.
pub fn compare(name: &str, commands: &[&str], otherwise: &[(&str, &str)]) {
    compare_built(find(name).unwrap(), commands, otherwise);
}

/// Checks the same for a program outside the table.
pub fn compare_built(program: &Program, commands: &[&str], otherwise: &[(&str, &str)]) {
    if !have_gdb() {
        return;
    }
    let name = program.name;
    let bundle = Bundle::recorded(program, Variant::Pie, &["--full"]).0;
    let executable = backtrail_tests::build(program, Variant::Pie).unwrap();
    let (ours, theirs) = (ours(&bundle, commands), by_gdb(&executable, &bundle, commands));
    assert_eq!(ours.len(), commands.len());
    let otherwise: BTreeMap<&str, &str> = otherwise.iter().copied().collect();
    let mut differences = Vec::new();
    for ((command, our), (_, their)) in ours.iter().zip(&theirs) {
        // The heading of a frame is not compared.
        if command.starts_with("frame") || command.starts_with("up") {
            continue;
        }
        let expected = match otherwise.get(command.as_str()) {
            Some(text) => text.lines().map(str::to_owned).collect(),
            None => their.clone(),
        };
        if *our != expected {
            differences.push(format!("{command}\n  ours: {our:#?}\n  expected: {expected:#?}"));
        }
    }
    assert!(differences.is_empty(), "{name}\n{}", differences.join("\n"));
}
