//! `cargo xtask package-extension`: checks, tests and packages the extension for VS Code.

use crate::node::Node;
use crate::{Failure, packages, readers, shell, web};
use std::fs;
use std::path::{Path, PathBuf};

/// Where its sources are.
const FOLDER: &str = "vscode-extension";

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
            node.run_script(FOLDER, "bundle", &["--target", "linux-x64", "--out", &package])
        });
    // The package for all platforms must not contain it.
    fs::remove_dir_all(&inside).map_err(failed)?;
    made
}

/// Makes the package for all platforms, without the binary.
pub fn package() -> Result<PathBuf, Failure> {
    let node = Node::among(&readers::python()?);
    install(&node)?;
    web::check(&node)?;
    for script in ["check", "test", "bundle"] {
        node.run_script(FOLDER, script, &[])?;
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
    node.install_in(FOLDER)
}
