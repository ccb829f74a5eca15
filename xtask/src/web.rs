//! `cargo xtask web`: checks and tests the views in `web/`, and bundles them.
//!
//! The results are the page of profiles and the script of the hub's timeline, which the binaries
//! contain.
//!
//! Both are in the repository, because a build of the binaries needs no Node.js. They have the
//! fingerprint of their sources, by which `cargo xtask tidy` finds outdated ones.
//! `cargo xtask package-extension` bundles them again and compares.

use crate::node::Node;
use crate::{Failure, packages, readers};
use std::fs;
use std::path::Path;

/// The repository's root: tests run in another folder.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The folder of the sources.
const FOLDER: &str = "web";
/// The generated page of profiles.
pub const PAGE: &str = "profile/src/format/html/page.html";
/// The generated script of the hub's timeline.
pub const TIMELINE: &str = "hub/static/timeline.js";
/// The files and folders of `web/` that both depend on, as in `web/scripts/fingerprint.mjs`.
const INPUTS: [&str; 3] = ["package-lock.json", "scripts", "src"];

/// Checks, tests, and writes the generated files.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS])?;
    run_scripts(&Node::among(&readers::python()?), ["check", "test", "page"])?;
    println!("Wrote {PAGE} and {TIMELINE}.");
    Ok(())
}

/// Checks, tests, and fails if a generated file is outdated.
pub fn check(node: &Node) -> Result<(), Failure> {
    run_scripts(node, ["check", "test", "stale"])
}

fn run_scripts(node: &Node, scripts: [&str; 3]) -> Result<(), Failure> {
    node.install_in(FOLDER)?;
    scripts
        .iter()
        .try_for_each(|script| node.run_script(FOLDER, script, &[]))
}

/// Returns how a generated file differs from its sources, or why these cannot be read.
pub fn difference(generated: &str) -> Option<String> {
    let root = Path::new(REPOSITORY).join(FOLDER);
    match fingerprint(&root) {
        Ok(found) if generated.contains(&format!("fingerprint {found:016x}.")) => None,
        Ok(_) => Some(format!("outdated for {FOLDER}/: run `cargo xtask web`")),
        Err(error) => Some(format!("cannot read {FOLDER}/: {error}")),
    }
}

/// Returns FNV-1a of the paths and contents of all files, each with a zero byte after it.
fn fingerprint(root: &Path) -> std::io::Result<u64> {
    let mut files = Vec::new();
    for input in INPUTS {
        list(root, input, &mut files)?;
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for name in files {
        add(name.as_bytes());
        add(&fs::read(root.join(&name))?);
    }
    Ok(hash)
}

/// Adds the paths of files below a folder, relative to the root and with slashes.
fn list(root: &Path, name: &str, files: &mut Vec<String>) -> std::io::Result<()> {
    let path = root.join(name);
    if !path.is_dir() {
        files.push(name.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?.file_name();
        list(root, &format!("{name}/{}", entry.to_string_lossy()), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_depends_on_paths_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        for name in ["scripts", "src"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        write("package-lock.json", "{}");
        write("src/a.ts", "1");
        let first = fingerprint(folder.path()).unwrap();
        write("unrelated.txt", "1");
        assert_eq!(fingerprint(folder.path()).unwrap(), first);
        write("src/a.ts", "2");
        let second = fingerprint(folder.path()).unwrap();
        write("src/b.ts", "");
        let third = fingerprint(folder.path()).unwrap();
        assert!(first != second && second != third);
        fs::remove_dir_all(folder.path().join("src")).unwrap();
        assert!(fingerprint(folder.path()).is_err());
    }
}
