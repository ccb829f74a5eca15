//! Running the binary under test as a user would.

use crate::build::target_directory;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, io};

/// The outcome of a run of `backtrail`.
#[derive(Clone, Debug)]
pub struct Run {
    /// The exit status; `None` after a signal, which is always an error.
    pub status: Option<i32>,
    /// Everything it printed on stdout.
    pub stdout: String,
    /// Everything it printed on stderr.
    pub stderr: String,
}

impl Run {
    /// Returns the run after checking that it exited with `status`.
    ///
    /// # Panics
    ///
    /// The status differs; the text contains both outputs.
    #[must_use]
    #[track_caller]
    pub fn exited(self, status: i32) -> Self {
        assert_eq!(
            self.status,
            Some(status),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Returns the one line on stderr, which every failure prints.
    ///
    /// # Panics
    ///
    /// Stderr does not have exactly one line.
    #[must_use]
    #[track_caller]
    pub fn sentence(&self) -> &str {
        assert_eq!(
            self.stderr.lines().count(),
            1,
            "stderr is not one line:\n{}",
            self.stderr
        );
        self.stderr.trim_end()
    }
}

/// Runs `backtrail` with these arguments, without a terminal and without our environment variables.
///
/// # Errors
///
/// The binary cannot be built or started.
pub fn backtrail<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> io::Result<Run> {
    let output = command()?.args(arguments).output()?;
    Ok(Run {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Returns the command alone, for tests that write to it or signal it.
///
/// # Errors
///
/// The binary cannot be built.
pub fn command() -> io::Result<Command> {
    let mut command = Command::new(binary()?);
    command
        .stdin(Stdio::null())
        .env("RUST_BACKTRACE", "0")
        // All tests share translations, as the recordings of a user do.
        .env("XDG_CACHE_HOME", repository().join("target/test-cache"))
        .env_remove("NO_COLOR");
    Ok(command)
}

/// Returns the binary under test: `BACKTRAIL_BIN`, or the result of `cargo build`, once per test
/// program.
///
/// # Errors
///
/// The build fails; cargo's messages are on stderr.
pub fn binary() -> io::Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BINARY.get_or_init(|| match env::var_os("BACKTRAIL_BIN") {
        // Tests run in their package's folder; the variable is relative to the repository's root.
        Some(path) => Ok(repository().join(path)),
        None => build().map_err(|error| error.to_string()),
    });
    built
        .as_deref()
        .map_err(|message| io::Error::other(message.clone()))
}

fn build() -> io::Result<PathBuf> {
    let status = cargo()
        .args(["build", "--quiet", "--package", "backtrail"])
        .current_dir(repository())
        .status()?;
    if !status.success() {
        return Err(io::Error::other("`cargo build --package backtrail` failed"));
    }
    Ok(target_directory().join("debug/backtrail"))
}

/// Returns the `cargo` that runs this program, without the variables of its package. Build scripts
/// that read these, such as that of `ring`, would otherwise run again for each package.
#[must_use]
pub fn cargo() -> Command {
    const OF_THE_PACKAGE: [&str; 5] = [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PRIMARY_",
    ];
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THE_PACKAGE.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// The repository's root.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
