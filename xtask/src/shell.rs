//! Running other programs: what is run is shown, and a failure ends the chore.

use crate::Failure;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Goes to the repository's root, so that every path below is short and relative to it.
pub fn enter_root() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::set_current_dir(&root).map_err(|error| format!("cannot enter {}: {error}", root.display()))
}

/// The cargo target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Returns the `cargo` that runs this task, without its environment variables of this package.
pub fn cargo() -> Command {
    backtrail_tests::backtrail::cargo()
}

/// Shows the command, runs it on this terminal, and fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| cannot_run(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed: {status}", shown(command)))
    }
}

/// Returns a command's standard output, or nothing when the command fails.
pub fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether a program of that name is in `PATH`.
pub fn in_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// The command as one would type it, programs by their last name.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    std::iter::once(program.file_name().unwrap_or(command.get_program()))
        .chain(command.get_args())
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains([' ', '\'', '"', '$', '*']) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

fn cannot_run(command: &Command, error: &std::io::Error) -> Failure {
    format!("cannot run `{}`: {error}", shown(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed_in_a_shell() {
        let mut command = Command::new("/usr/bin/backtrail");
        command.args(["debug", "-e", "goto crash", "it's"]);
        assert_eq!(shown(&command), r"backtrail debug -e 'goto crash' 'it'\''s'");
    }

    #[test]
    fn failing_command_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(
            run(&mut Command::new("false"))
                .unwrap_err()
                .contains("`false` failed")
        );
        assert!(
            run(&mut Command::new("no-such-program"))
                .unwrap_err()
                .contains("cannot run")
        );
    }
}
