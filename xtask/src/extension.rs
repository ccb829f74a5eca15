//! `cargo xtask package-extension`: checks, tests and packages the extension for VS Code.

use crate::node::Node;
use crate::{Failure, packages, readers, shell};
use std::fs;
use std::path::{Path, PathBuf};

/// Where its sources are.
const FOLDER: &str = "vscode-extension";
/// The lock file by which npm has installed there, and the one to install by.
const INSTALLED: &str = "vscode-extension/node_modules/.xtask-lock.json";
const LOCK: &str = "vscode-extension/package-lock.json";

/// Leaves the package at `target/backtrail.vsix`, and says so.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS])?;
    let package = package()?;
    println!("The extension is at {}.", package.display());
    Ok(())
}

/// Makes the package for one platform: it contains the binary, and the licenses of its libraries.
pub fn package_with(binary: &Path, package: &Path) -> Result<(), Failure> {
    let node = Node::among(&readers::python()?);
    install(&node)?;
    let inside = Path::new(FOLDER).join("bin");
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", inside.display());
    fs::create_dir_all(&inside).map_err(failed)?;
    let made = fs::copy(binary, inside.join("backtrail"))
        .and_then(|_| fs::copy("THIRD-PARTY.txt", inside.join("THIRD-PARTY.txt")))
        .map_err(failed)
        .and_then(|_| {
            let package = package.display().to_string();
            npm(
                &node,
                &[
                    "run",
                    "--silent",
                    "bundle",
                    "--",
                    "--target",
                    "linux-x64",
                    "--out",
                    &package,
                ],
            )
        });
    // The package for all platforms must not contain it.
    fs::remove_dir_all(&inside).map_err(failed)?;
    made
}

/// Makes the package for all platforms, without the binary.
pub fn package() -> Result<PathBuf, Failure> {
    let node = Node::among(&readers::python()?);
    install(&node)?;
    for script in ["check", "test", "bundle"] {
        npm(&node, &["run", "--silent", script])?;
    }
    let made = Path::new(FOLDER).join("dist/backtrail.vsix");
    let package = shell::target().join("backtrail.vsix");
    fs::create_dir_all(shell::target())
        .and_then(|()| fs::copy(&made, &package))
        .map_err(|error| format!("cannot copy {} to {}: {error}", made.display(), package.display()))?;
    Ok(package)
}

/// Installs exactly what the lock file says, unless that is there.
pub fn install(node: &Node) -> Result<(), Failure> {
    let wanted = fs::read(LOCK).map_err(|error| format!("cannot read {LOCK}: {error}"))?;
    if fs::read(INSTALLED).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // No package runs code of its own when it is installed.
    npm(
        node,
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

fn npm(node: &Node, arguments: &[&str]) -> Result<(), Failure> {
    shell::run(node.npm()?.args(arguments).current_dir(FOLDER))
}
