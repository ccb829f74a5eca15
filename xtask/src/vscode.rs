//! VS Code for the tests, without a screen: its server from code-server, and the driver of a
//! browser, in our own folder. The browser is Debian's.
//!
//! Only the VS Code part of code-server runs. `tests/vscode/package.json` has the imports of its
//! server. No module is compiled, because the tests use no logs in files and no terminals.

use crate::node::Node;
use crate::{Failure, extension, packages, readers};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder that names the packages.
const WANTED: &str = "tests/vscode";
/// VS Code among them.
const SERVER: &str = "node_modules/code-server/lib/vscode";

/// Paths that the tests drive. Without one, the tests are skipped with a message.
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

/// Installs missing parts, and packages the current extension. A failure of the latter is returned.
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
    // VS Code searches packages next to itself, and serves some of them to the browser.
    let beside = folder.join(SERVER).join("node_modules");
    if !beside.is_dir() {
        symlink("../../..", &beside).map_err(|error| format!("cannot link {}: {error}", beside.display()))?;
    }
    Ok(folder)
}
