//! The stand-in for Intel PT: our test-only kernel module, built for a packaged kernel.

use super::kernel::Kernel;
use super::{cannot, output_of};
use crate::Failure;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "tests/vm/intel_pt";

/// Returns the module for `kernel`, built again after its source changes.
pub fn build(kernel: &Kernel, folder: &Path) -> Result<PathBuf, Failure> {
    let work = folder.join("modules").join(&kernel.release);
    let built = work.join("intel_pt.ko");
    let sources = sources()?;
    let same = sources
        .iter()
        .all(|(name, content)| fs::read(work.join(name)).ok().as_ref() == Some(content));
    if same && built.exists() {
        return Ok(built);
    }
    if work.exists() {
        fs::remove_dir_all(&work).map_err(|error| cannot("remove", &work, &error))?;
    }
    fs::create_dir_all(&work).map_err(|error| cannot("make", &work, &error))?;
    for (name, content) in &sources {
        let path = work.join(name);
        fs::write(&path, content).map_err(|error| cannot("write", &path, &error))?;
    }
    output_of(
        Command::new("make")
            .arg("--silent")
            .arg("--directory")
            .arg(kernel.headers())
            .arg(format!("M={}", work.display()))
            // Debian names one compiler version. BTF of a module needs pahole, and no test reads
            // it.
            .args(["CC=cc", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
            // The kernel's own.
            .env_remove("MAKEFLAGS"),
    )
    .map_err(|error| {
        format!(
            "the stand-in for Linux {} cannot be built: {error}",
            kernel.release
        )
    })?;
    Ok(built)
}

/// The names of its files, and what is in them.
fn sources() -> Result<Vec<(OsString, Vec<u8>)>, Failure> {
    let folder = Path::new(SOURCES);
    let entries = fs::read_dir(folder).map_err(|error| cannot("read", folder, &error))?;
    entries
        .flatten()
        .map(|entry| {
            let path = entry.path();
            let content = fs::read(&path).map_err(|error| cannot("read", &path, &error))?;
            Ok((entry.file_name(), content))
        })
        .collect()
}
