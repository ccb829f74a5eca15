//! Cores of other tools: files of other builds, hung processes, compressed files, and `--symfs`.

mod builds;
mod compressed;
mod hung;
mod loaded;
mod stored;
mod supplementary;

use backtrail_tests::backtrail::{Run, backtrail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A program that crashes in `fail_here`. With `-DNEW`, other functions are at its addresses.
const CRASH: &str = r#"
#include <stdlib.h>
#ifdef NEW
static __attribute__((noinline)) int decoy(int *p) { return p ? *p : 1; }
static __attribute__((noinline)) int second(int *p) { return decoy(p) + 2; }
#endif
__attribute__((noinline)) int fail_here(int *hole, int n) { return *hole + n; }
int main(int argc, char **argv)
{
#ifdef NEW
    if (argc > 3) return second(&argc);
#endif
    (void)argv;
    return fail_here(argc > 5 ? &argc : NULL, 4);
}
"#;

/// A folder with a program and its cores.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    /// Compiles a C program here.
    #[track_caller]
    fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let file = self.at(&format!("{name}.c"));
        fs::write(&file, source).unwrap();
        let program = self.at(name);
        // Linkers do not always replace a file that is running.
        let _ = fs::remove_file(&program);
        let mut command = Command::new("gcc");
        command
            .current_dir(self.at(""))
            .args(["-g", "-O1", "-pthread"])
            .args(flags);
        run(command.arg(&file).arg("-o").arg(&program));
        program
    }

    /// Runs a program in GDB up to its crash, and returns its core. `steps` lead there; if there
    /// are none, the program just runs.
    #[track_caller]
    fn crash(&self, program: &Path, steps: &[&str]) -> PathBuf {
        let core = self.at("core");
        let _ = fs::remove_file(&core);
        let save = format!("generate-core-file {}", core.display());
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-ex", "set pagination off"]);
        let steps = if steps.is_empty() { &["run"] } else { steps };
        for line in steps.iter().chain(&[&*save]) {
            command.args(["-ex", line]);
        }
        run(command.arg(program));
        core
    }

    /// Copies a file to a new path here.
    #[track_caller]
    fn copy(&self, from: &Path, to: &str) -> PathBuf {
        let to = self.at(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap();
        to
    }
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs commands in the debugger on a core.
#[track_caller]
fn debug(core: &Path, options: &[&OsStr], commands: &[&str]) -> Run {
    let mut arguments: Vec<&OsStr> = vec!["debug".as_ref(), core.as_ref(), "--batch".as_ref()];
    arguments.extend(options);
    for command in commands {
        arguments.extend(["-e".as_ref(), OsStr::new(command)]);
    }
    backtrail(arguments).unwrap()
}

/// Returns the build id of a file, by binutils.
#[track_caller]
fn build_id(file: &Path) -> String {
    let notes = run(Command::new("readelf").arg("-n").arg(file));
    let line = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    line.unwrap().to_owned()
}

/// Returns `.build-id/xx/yyyySUFFIX`.
fn by_build_id(id: &str, suffix: &str) -> String {
    format!(".build-id/{}/{}{suffix}", &id[..2], &id[2..])
}
