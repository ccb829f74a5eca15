//! The first file system of a machine: tests, `backtrail`, their libraries, the stand-in,
//! recordings.

use super::archive::Archive;
use super::recordings::Recording;
use super::{cannot, output_of};
use crate::Failure;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The contents.
pub struct Contents<'a> {
    /// Programs of this machine, by their paths in the archive.
    pub programs: &'a [(&'a str, &'a Path)],
    /// Kernel modules.
    pub modules: &'a [(String, Vec<u8>)],
    /// Recorded programs, and what they did.
    pub recordings: &'a [Recording],
    /// The beginning of the names of tests to run; none is all.
    pub only: Option<&'a str>,
}

/// Writes the archive to `path`.
pub fn write(contents: &Contents, path: &Path) -> Result<(), Failure> {
    let mut archive = Archive::new();
    for folder in ["dev", "proc", "sys", "tmp", "run", "etc", "var"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.file("only", contents.only.unwrap_or_default().as_bytes());

    let mut libraries = BTreeSet::new();
    for (name, program) in contents.programs {
        libraries.extend(libraries_of(program)?);
        archive.file(name, &stripped(program, path)?);
    }
    for library in &libraries {
        let name = library.to_string_lossy();
        archive.file(name.trim_start_matches('/'), &read(library)?);
    }
    for (name, module) in contents.modules {
        archive.file(name, module);
    }
    for recording in contents.recordings {
        archive.file(
            &format!("recordings/{}", recording.name),
            &read(&recording.program)?,
        );
        archive.file(
            &format!("recordings/{}.pt", recording.name),
            &read(&recording.packets)?,
        );
    }
    fs::write(path, archive.finish()).map_err(|error| cannot("write", path, &error))
}

/// Debug information is no use inside, and large.
pub(super) fn stripped(program: &Path, beside: &Path) -> Result<Vec<u8>, Failure> {
    let small = beside.with_extension("stripped");
    output_of(Command::new("strip").arg("-o").arg(&small).arg(program))?;
    let bytes = read(&small);
    fs::remove_file(&small).map_err(|error| cannot("remove", &small, &error))?;
    bytes
}

fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, Failure> {
    Ok(loaded(&output_of(Command::new("ldd").arg(program))?))
}

/// Reads the output of `ldd`: paths after an arrow, and the loader, which has none.
fn loaded(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim();
            let path = line.split_once("=> ").map_or(line, |(_, path)| path);
            let path = path.split(" (").next()?;
            path.starts_with('/').then(|| path.into())
        })
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| cannot("read", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found() {
        let text = "\tlinux-vdso.so.1 (0x00007fb2d4d28000)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fb2)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007fb2)\n";
        assert_eq!(
            loaded(text),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert!(loaded("\tnot a dynamic executable\n").is_empty());
    }
}
