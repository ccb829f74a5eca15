//! What tests open exports with, in folders of our own: packages for Python, among them a Node.js, and packages for
//! JavaScript that it runs.

use crate::node::{self, Node};
use crate::{Failure, packages, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages for Python, each with the folder that shows that it is there: Perfetto's schema, what reads by it, and Node.js.
const PYTHON: [(&str, &str); 3] = [
    ("perfetto", "perfetto"),
    ("protobuf", "google/protobuf"),
    (node::WHEEL, node::WHEEL_FOLDER),
];

/// The folder that names the packages for JavaScript.
const JAVASCRIPT: &str = "tests/readers";

/// Where the readers are; `None`: they cannot be had, and the tests that need them are skipped and say so.
pub struct Readers {
    /// Packages for Python, for `PYTHONPATH`.
    pub python: Option<PathBuf>,
    /// The program `node`, and the folder with its packages.
    pub node: Option<(PathBuf, PathBuf)>,
}

impl Readers {
    /// The variables of the environment by which tests find them.
    pub fn variables(&self) -> Vec<(&'static str, &Path)> {
        let python = self.python.iter().map(|folder| ("PYTHONPATH", &**folder));
        let node = self.node.iter().flat_map(|(node, packages)| {
            let (node, packages): (&Path, &Path) = (node, packages);
            [("BACKTRAIL_NODE", node), ("BACKTRAIL_READERS", packages)]
        });
        python.chain(node).collect()
    }
}

/// `cargo xtask readers`.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS])?;
    for (name, value) in install().variables() {
        println!("export {name}={}", value.display());
    }
    Ok(())
}

/// Installs what is not there yet.
pub fn install() -> Readers {
    let python = or_without(python());
    let node = python.as_ref().and_then(|python| {
        let node = Node::among(python);
        let packages = or_without(node.install(JAVASCRIPT, "readers"))?;
        Some((node.program(), packages))
    });
    Readers { python, node }
}

fn or_without<T>(installed: Result<T, Failure>) -> Option<T> {
    installed
        .map_err(|error| println!("{error}; going on without: the tests that need it are skipped."))
        .ok()
}

/// The folder of the packages for Python.
pub fn python() -> Result<PathBuf, Failure> {
    let folder = node::folder("python")?;
    let missing: Vec<&str> = PYTHON
        .iter()
        .filter(|(_, sign)| !folder.join(sign).is_dir())
        .map(|&(package, _)| package)
        .collect();
    if missing.is_empty() {
        return Ok(folder);
    }
    println!(
        "Installing {} for Python in {}.",
        missing.join(", "),
        folder.display()
    );
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .arg("--target")
        .arg(&folder)
        .args(missing);
    shell::run(&mut pip)?;
    Ok(folder)
}
