//! `cargo xtask package-extension`: checks, tests and packages the extension for VS Code.

use crate::{Failure, packages, readers, shell};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where its sources are.
const FOLDER: &str = "vscode-extension";
/// What npm has installed there, and what was asked of it.
const INSTALLED: &str = "vscode-extension/node_modules/.xtask-lock.json";
const LOCK: &str = "vscode-extension/package-lock.json";

/// Leaves the package at `target/backtrail.vsix`, and says so.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS])?;
    let package = package()?;
    println!("The extension is at {}.", package.display());
    Ok(())
}

/// Makes the package.
pub fn package() -> Result<PathBuf, Failure> {
    let wheel = readers::node()?;
    install(&wheel)?;
    run_script(&wheel, "check")?;
    run_script(&wheel, "test")?;
    run_script(&wheel, "bundle")?;
    let made = Path::new(FOLDER).join("dist/backtrail.vsix");
    let package = shell::target().join("backtrail.vsix");
    fs::create_dir_all(shell::target())
        .and_then(|()| fs::copy(&made, &package))
        .map_err(|error| format!("cannot copy {} to {}: {error}", made.display(), package.display()))?;
    Ok(package)
}

/// Installs exactly what the lock file says, unless that is there.
fn install(wheel: &Path) -> Result<(), Failure> {
    let wanted = fs::read(LOCK).map_err(|error| format!("cannot read {LOCK}: {error}"))?;
    if fs::read(INSTALLED).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    npm(
        wheel,
        // No package runs code of its own when it is installed.
        &[
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ],
    )?;
    fs::write(INSTALLED, wanted).map_err(|error| format!("cannot write {INSTALLED}: {error}"))
}

fn run_script(wheel: &Path, name: &str) -> Result<(), Failure> {
    npm(wheel, &["run", "--silent", name])
}

fn npm(wheel: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = readers::npm(wheel);
    command.args(arguments).current_dir(FOLDER);
    with_path(&mut command, &wheel.join("bin"))?;
    shell::run(&mut command)
}

/// Scripts start `node` by its name: they must find this one first.
fn with_path(command: &mut Command, first: &Path) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::iter::once(first.to_path_buf()).chain(std::env::split_paths(AsRef::<OsStr>::as_ref(&path)));
    let path = std::env::join_paths(folders)
        .map_err(|error| format!("cannot put {} on PATH: {error}", first.display()))?;
    command.env("PATH", path);
    Ok(())
}
