//! The cores of a build, which GDB writes at seeded random instructions.

use super::builds::Build;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use tempfile::TempDir;

/// The script that runs inside GDB.
const SCRIPT: &str = include_str!("stops.py");
/// The seed of the stops.
const SEED: u64 = 36;

/// Cores in a folder.
pub struct Cores {
    folder: PathBuf,
    /// The number of cores.
    pub count: usize,
    _temporary: Option<TempDir>,
}

impl Cores {
    /// Stops a program `count` times. With `BACKTRAIL_LOCALS_KEEP`, the cores are kept with GDB's
    /// answers, and the next run uses them again.
    pub fn of(build: &Build, executable: &Path, count: usize) -> Self {
        if env::var_os("BACKTRAIL_LOCALS_KEEP").is_none() {
            let temporary = tempfile::tempdir_in(build.folder()).unwrap();
            let cores = Self {
                folder: temporary.path().to_owned(),
                count,
                _temporary: Some(temporary),
            };
            cores.write(build, executable);
            return cores;
        }
        let cores = Self {
            folder: build.folder().join(format!("cores-{count}")),
            count,
            _temporary: None,
        };
        if !cores.folder.exists() {
            fs::create_dir_all(&cores.folder).unwrap();
            cores.write(build, executable);
        }
        cores
    }

    fn write(&self, build: &Build, executable: &Path) {
        let settings = json!({
            "source": build.source.file(),
            "lines": build.source.lines(),
            "entry": build.source.entry(),
            "count": self.count,
            "seed": SEED,
            "folder": self.folder,
        });
        let settings = ("LOCALS_STOPS", settings.to_string());
        let errors = run_gdb(&self.folder, "stops.py", SCRIPT, executable, settings);
        assert!(!errors.contains("Traceback"), "{}: {errors}", build.name());
    }

    /// Returns the path of a core.
    pub fn path(&self, number: usize) -> PathBuf {
        self.folder.join(format!("core.{number}"))
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Runs a script inside GDB, with its settings in a variable of the environment, and returns the
/// errors.
pub fn run_gdb(
    folder: &Path,
    name: &str,
    script: &str,
    executable: &Path,
    settings: (&str, String),
) -> String {
    let path = folder.join(name);
    fs::write(&path, script).unwrap();
    let output = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-iex", "set debuginfod enabled off"])
        // Debug files of libraries take GDB a tenth of a second for each core.
        .args(["-iex", "set debug-file-directory /nonexistent"])
        .args(["-iex", "set auto-load safe-path /usr/share/gdb"])
        .arg(executable)
        .arg("-x")
        .arg(&path)
        .env(settings.0, settings.1)
        .current_dir(folder)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
