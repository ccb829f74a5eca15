//! Text for a terminal: escaping, colors, and messages on standard error.

use crate::args::ColorChoice;
use backtrail_console::output::visible;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::OnceLock;

/// The choice of the command line.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Sets when output has colors. Only the first call has an effect.
pub fn set_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// Returns whether output has colors: as `--color` says, or if stdout is a terminal with colors and
/// `NO_COLOR` is not set (<https://no-color.org>).
pub fn has_color() -> bool {
    match COLOR.get() {
        Some(ColorChoice::Always) => return true,
        Some(ColorChoice::Never) => return false,
        Some(ColorChoice::Auto) | None => {}
    }
    let says_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    std::io::stdout().is_terminal() && !says_no && !is_dumb
}

/// Returns text from a bundle on one line, without control characters.
pub fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// Prints a message to standard error, on one line.
pub fn print_error(line: &str) {
    // The reader may be gone, and there is nowhere else to report that.
    let _ = writeln!(std::io::stderr(), "backtrail: {}", visible(line));
}

/// Asks for a secret on standard error. The terminal does not show what is typed, if stty(1) can
/// change that.
#[cfg(feature = "hub")]
pub fn ask_secret(question: &str) -> io::Result<String> {
    let stty = |mode: &str| {
        let status = std::process::Command::new("stty").arg(mode).status();
        status.is_ok_and(|status| status.success())
    };
    let mut error = io::stderr();
    write!(error, "{}", visible(question))?;
    error.flush()?;
    let is_hidden = stty("-echo");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if is_hidden {
        stty("echo");
        writeln!(error)?;
    }
    read?;
    Ok(answer)
}

/// Asks a question on standard error, and returns whether the answer is yes. An empty line means
/// yes, and the end of the input no.
pub fn ask(question: &str) -> io::Result<bool> {
    let mut error = io::stderr();
    write!(error, "{}", visible(question))?;
    error.flush()?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer)?;
    let answer = answer.trim().to_lowercase();
    Ok(read != 0 && matches!(&*answer, "" | "y" | "yes"))
}
