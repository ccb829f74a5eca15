//! What tests read exports with: packages for Python, in a folder of our own.

use crate::shell;
use std::path::PathBuf;
use std::process::Command;

/// What is installed: Perfetto's schema, and what reads by it.
const PACKAGES: [&str; 2] = ["perfetto", "protobuf"];

/// The folder with the packages, which are installed if they are not there yet; `None`: they cannot be, and the tests that
/// need them are skipped and say so.
pub fn packages() -> Option<PathBuf> {
    // Tests run in folders of their own.
    let folder = std::path::absolute(shell::target().join("python")).ok()?;
    if folder.join("perfetto").is_dir() {
        return Some(folder);
    }
    println!(
        "Installing {} for Python in {}.",
        PACKAGES.join(" and "),
        folder.display()
    );
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
    ])
    .arg(&folder)
    .args(PACKAGES);
    match shell::run(&mut pip) {
        Ok(()) => Some(folder),
        Err(error) => {
            println!("{error}; going on without: the test that needs it is skipped.");
            None
        }
    }
}
