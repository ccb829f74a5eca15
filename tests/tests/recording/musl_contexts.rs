//! The context that a program with musl publishes for OpenTelemetry, in the bundle of its crash.

use crate::request_context::{EXPORT, LOADER, assert_has_context, compiled_by, example, recorded};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles a source for musl.
fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    compiled_by("musl-gcc", folder, name, source, flags)
}

/// Returns whether programs for musl can be compiled.
fn has_musl() -> bool {
    let mut compiler = Command::new("musl-gcc");
    compiler.arg("--version").stdout(Stdio::null());
    let found = compiler.status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: musl-gcc is missing");
    }
    found
}

#[test]
fn crash_of_a_program_with_musl_has_its_request() {
    if !has_musl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("dynamic", &[EXPORT][..]),
        ("no-pie", &[EXPORT, "-no-pie"]),
        ("static", &[EXPORT, "-static"]),
    ] {
        let program = compiled(folder.path(), name, &example(), flags);
        assert_has_context(&recorded(&[program.as_os_str()]), name);
    }
}

#[test]
fn variable_of_a_library_is_found_with_musl() {
    if !has_musl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let loader = compiled(folder.path(), "loader", LOADER, &[]);
    for (name, flag) in [("gnu", "-mtls-dialect=gnu"), ("gnu2", "-mtls-dialect=gnu2")] {
        let flags = ["-shared", "-fPIC", flag];
        let library = compiled(folder.path(), name, &example(), &flags);
        let preload = format!("LD_PRELOAD={}", library.display());
        let (loader, library) = (loader.as_os_str(), library.as_os_str());
        assert_has_context(&recorded(&[loader, library]), &format!("{name}, loaded later"));
        let at_start = ["env".as_ref(), preload.as_ref(), loader, library];
        assert_has_context(&recorded(&at_start), &format!("{name}, loaded at the start"));
    }
}
