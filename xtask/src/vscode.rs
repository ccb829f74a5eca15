//! A VS Code for the tests, without a screen: its server as code-server carries it, for a browser, and what drives the
//! browser, in a folder of our own. The browser is Debian's.
//!
//! Of code-server only VS Code is run. What its server imports is in `tests/vscode/package.json`; nothing is compiled, for
//! what is missing (logs in files, terminals) the tests do not use.

use crate::node::Node;
use crate::{Failure, extension, packages, readers};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder that names the packages.
const WANTED: &str = "tests/vscode";
/// VS Code among them.
const SERVER: &str = "node_modules/code-server/lib/vscode";

/// What the tests drive; `None`: it cannot be had, and they are skipped and say so.
pub struct VsCode {
    /// The folder with VS Code's server and what drives the browser.
    server: Option<PathBuf>,
    /// Our extension, packaged.
    extension: Option<PathBuf>,
}

impl VsCode {
    /// The variables of the environment by which tests find it.
    pub fn variables(&self) -> Vec<(&'static str, &Path)> {
        let server = self.server.iter().map(|folder| ("BACKTRAIL_VSCODE", &**folder));
        let extension = self.extension.iter().map(|file| ("BACKTRAIL_VSIX", &**file));
        server.chain(extension).collect()
    }
}

/// `cargo xtask vscode`.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS, packages::EDITORS])?;
    let node = Node::among(&readers::python()?).program();
    println!("export BACKTRAIL_NODE={}", node.display());
    for (name, value) in install()?.variables() {
        println!("export {name}={}", value.display());
    }
    Ok(())
}

/// Installs what is not there yet, and packages the extension as it is now: when that fails, this does.
pub fn install() -> Result<VsCode, Failure> {
    let Some(python) = readers::or_without(readers::python()) else {
        return Ok(VsCode {
            server: None,
            extension: None,
        });
    };
    let node = Node::among(&python);
    let server = readers::or_without(server(&node));
    let extension = readers::or_without(extension::install(&node))
        .map(|()| whole(&extension::package()?))
        .transpose()?;
    Ok(VsCode { server, extension })
}

/// Tests run in folders of their own, so it is a whole path.
fn whole(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn server(node: &Node) -> Result<PathBuf, Failure> {
    let folder = node.install(WANTED, "vscode")?;
    // VS Code looks for packages beside itself, and gives some to the browser from there.
    let beside = folder.join(SERVER).join("node_modules");
    if !beside.is_dir() {
        symlink("../../..", &beside).map_err(|error| format!("cannot link {}: {error}", beside.display()))?;
    }
    Ok(folder)
}
