//! The program that shows output longer than the terminal, chosen as git does.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

/// The pager of a user who names none.
const DEFAULT: &str = "less";

/// The characters for which the shell runs the pager's command line.
const FOR_SHELL: &[char] = &[
    '|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', ' ', '\t', '\n', '*', '?', '[', '#', '~',
    '=', '%',
];

/// The statuses of a shell that cannot run a program.
const NOT_RUN: [i32; 2] = [126, 127];

/// The width between two tab stops.
const TAB: usize = 8;

/// A pager.
pub(super) struct Pager {
    /// Its command line.
    command: String,
    /// The variable that names it; `None` for the default.
    variable: Option<&'static str>,
}

impl Pager {
    /// Returns the pager of `BACKTRAIL_PAGER` or `PAGER`, else less; `None` if that is empty or
    /// cat.
    pub(super) fn from_environment() -> Option<Self> {
        let named = ["BACKTRAIL_PAGER", "PAGER"]
            .into_iter()
            .find_map(|name| Some((name, env::var(name).ok()?)));
        let (variable, command) = match named {
            Some((name, command)) => (Some(name), command),
            None => (None, DEFAULT.to_owned()),
        };
        let command = command.trim().to_owned();
        let is_none = command.is_empty() || command == "cat";
        (!is_none).then_some(Self { command, variable })
    }

    /// Shows a text, and waits for the end of the pager. A pager that ends early is no failure.
    ///
    /// # Errors
    ///
    /// If the pager cannot be run: a sentence about the variable that names it.
    pub(super) fn show(&self, text: &str) -> Result<(), Option<String>> {
        let cannot = |reason: String| {
            let variable = self.variable?;
            Some(format!(
                "cannot run the pager of {variable}, {:?}: {reason}; output is printed without a pager",
                self.command
            ))
        };
        let mut command = match self.command.contains(FOR_SHELL) {
            true => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(&self.command);
                shell
            }
            false => Command::new(&self.command),
        };
        // As git does: end at once if the text fits, show colors, and leave the text on the screen.
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        let child = command.stdin(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| cannot(error.to_string()))?;
        if let Some(mut input) = child.stdin.take() {
            // The user may leave the pager before it has read everything.
            let _ = input.write_all(text.as_bytes());
        }
        let ended = child.wait().map_err(|error| cannot(error.to_string()))?;
        match ended.code().filter(|status| NOT_RUN.contains(status)) {
            Some(status) => Err(cannot(format!("the shell ended with status {status}"))),
            None => Ok(()),
        }
    }
}

/// Returns the number of rows that a text takes on a terminal of that many columns.
pub(super) fn rows_of(text: &str, columns: usize) -> usize {
    let rows = |line| width_of(line).div_ceil(columns.max(1)).max(1);
    text.lines().map(rows).sum()
}

/// Returns the columns of a line, without its colors.
fn width_of(line: &str) -> usize {
    let mut width = 0;
    let mut is_color = false;
    for char in line.chars() {
        match char {
            '\x1b' => is_color = true,
            'm' if is_color => is_color = false,
            _ if is_color => {}
            '\t' => width = (width / TAB + 1) * TAB,
            _ => width += 1,
        }
    }
    width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pager(command: &str) -> Pager {
        Pager {
            command: command.to_owned(),
            variable: Some("PAGER"),
        }
    }

    #[test]
    fn rows_count_wrapped_lines_without_colors() {
        assert_eq!(rows_of("", 80), 0);
        assert_eq!(rows_of("a\n\nb\n", 80), 3);
        assert_eq!(rows_of("0123456789\n", 10), 1);
        assert_eq!(rows_of("0123456789a\n", 10), 2);
        assert_eq!(rows_of("\x1b[1;31m0123456789\x1b[0m\n", 10), 1);
        assert_eq!(rows_of("\tab\n", 10), 1);
        assert_eq!(rows_of("\tabc\n", 10), 2);
    }

    #[test]
    fn pager_that_cannot_run_is_reported_with_its_variable() {
        for command in ["no-such-pager", "no-such-pager -R"] {
            let problem = pager(command).show("text\n").unwrap_err().unwrap();
            assert!(problem.contains("PAGER"), "{problem}");
            assert!(problem.contains(command), "{problem}");
        }
        let unnamed = Pager {
            command: "no-such-pager".to_owned(),
            variable: None,
        };
        assert_eq!(unnamed.show("text\n"), Err(None));
    }

    #[test]
    fn pager_that_ends_early_is_no_failure() {
        let long = "x".repeat(1 << 20);
        assert_eq!(pager("true").show(&long), Ok(()));
        assert_eq!(pager("exit 1").show(&long), Ok(()));
    }
}
