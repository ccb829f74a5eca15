//! Computes a fingerprint of the translator, so that translations of another version are not used.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    // The encoding of instructions also depends on the versions of libraries.
    let sources = ["src", "../semantics/src", "../pt/src", "../Cargo.lock"];
    let mut hasher = DefaultHasher::new();
    for source in sources {
        add(&root.join(source), &mut hasher)?;
    }
    println!("cargo::rustc-env=BACKTRAIL_TRANSLATOR={:016x}", hasher.finish());
    Ok(())
}

/// Adds a file, or all files of a directory in the order of their names.
fn add(path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", path.display());
    if !path.is_dir() {
        // A published package has no lock file.
        hasher.write(&fs::read(path).unwrap_or_default());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| add(entry, hasher))
}
