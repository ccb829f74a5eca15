//! The recorded crash of a program with sources, which the tests of editors share.

use backtrail_tests::backtrail::{backtrail, repository};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path in an environment variable.
pub fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Builds the bakery in `folder`, beside its source, and returns the program.
pub fn build(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    fs::copy(
        repository().join("tests/vscode/bakery.c"),
        folder.join("bakery.c"),
    )
    .unwrap();
    let output = Command::new("cc")
        .current_dir(folder)
        .args([
            "-g",
            "-O0",
            "-pthread",
            "-Wl,--build-id=sha1",
            "-o",
            "bakery",
            "bakery.c",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    folder.join("bakery")
}

/// Builds the bakery in `folder`, records its crash, and returns the bundle's folder.
pub fn bakery(folder: &Path) -> PathBuf {
    let (bundle, program) = (folder.join("crash.bundle"), build(folder));
    record(&program, &bundle, &[]);
    bundle
}

/// Records the crash of the built bakery.
pub fn record(program: &Path, bundle: &Path, options: &[&str]) {
    let mut command: Vec<&OsStr> = vec!["record".as_ref(), "--exit-zero".as_ref()];
    command.extend(options.iter().map(OsStr::new));
    command.extend([
        "-o".as_ref(),
        bundle.as_os_str(),
        "--".as_ref(),
        program.as_os_str(),
    ]);
    let _ = backtrail(command).unwrap().exited(0);
}
