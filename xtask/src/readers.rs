//! Programs that read exports, drive the debug adapter and use a hub in tests. They are Python
//! packages with a Node.js, and JavaScript packages that it runs, in our own folders.

use crate::node::{self, Node};
use crate::{Failure, packages, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages, each with a folder that shows its presence. Some read exports:
/// Perfetto's schema and reader, and Node.js. The others use a hub: clients of uploads and
/// of profiles, a generator of requests, and a server of S3 with what it needs.
const PYTHON: [(&str, &str); 13] = [
    ("perfetto", "perfetto"),
    ("protobuf", "google/protobuf"),
    (node::WHEEL, node::WHEEL_FOLDER),
    ("sentry-cli==3.8.2", "sentry_cli-3.8.2.dist-info"),
    ("moto==5.2.5", "moto-5.2.5.dist-info"),
    ("flask", "flask"),
    ("flask-cors", "flask_cors"),
    ("tuspy==1.1.0", "tuspy-1.1.0.dist-info"),
    ("schemathesis==4.32.5", "schemathesis-4.32.5.dist-info"),
    ("pyroscope-io==1.4.0", "pyroscope_io-1.4.0.dist-info"),
    ("grpcio==1.85.3", "grpcio-1.85.3.dist-info"),
    ("grpcio-tools==1.85.1", "grpcio_tools-1.85.1.dist-info"),
    (
        "opentelemetry-proto==1.45.2",
        "opentelemetry_proto-1.45.2.dist-info",
    ),
];

/// The folder that lists the JavaScript packages which read exports, and their installed folder.
const EXPORTS: (&str, &str) = ("tests/readers", "readers");
/// The same of those that drive the debug adapter.
const DAP: (&str, &str) = ("tests/dap", "dap-client");
/// The same of a client that uploads files to a hub.
const TUS: (&str, &str) = ("tests/tus", "tus-client");

/// Paths of the readers. Without one, the tests that need it are skipped with a message.
pub struct Readers {
    /// Packages for Python, for `PYTHONPATH`.
    pub python: Option<PathBuf>,
    /// The program `node`.
    pub node: Option<PathBuf>,
    /// The folder with the packages that open exports.
    pub exports: Option<PathBuf>,
    /// The folder with the packages that drive the debug adapter.
    pub dap: Option<PathBuf>,
    /// The folder with the client of resumable uploads.
    pub tus: Option<PathBuf>,
}

impl Readers {
    /// The variables of the environment by which tests find them.
    pub fn variables(&self) -> Vec<(&'static str, &Path)> {
        [
            ("PYTHONPATH", &self.python),
            ("BACKTRAIL_NODE", &self.node),
            ("BACKTRAIL_READERS", &self.exports),
            ("BACKTRAIL_DAP_CLIENT", &self.dap),
            ("BACKTRAIL_TUS_CLIENT", &self.tus),
        ]
        .into_iter()
        .filter_map(|(name, path)| Some((name, path.as_deref()?)))
        .collect()
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
    let node = python.as_ref().map(|python| Node::among(python));
    let packages = |(wanted, name)| or_without(node.as_ref()?.install(wanted, name));
    let (exports, dap, tus) = (packages(EXPORTS), packages(DAP), packages(TUS));
    Readers {
        python,
        node: node.map(|node| node.program()),
        exports,
        dap,
        tus,
    }
}

/// Returns the installed path, or prints the reason of a failure.
pub fn or_without<T>(installed: Result<T, Failure>) -> Option<T> {
    installed
        .map_err(|error| println!("{error}; the tests that need it are skipped."))
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
