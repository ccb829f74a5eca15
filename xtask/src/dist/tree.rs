//! The files of a package.

use super::product::Product;
use super::split::Split;
use super::{cannot, output_of, read};
use crate::{Failure, deps};
use flate2::{Compression, GzBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The folder of all documents.
const DOCUMENTS: &str = "usr/share/doc";
/// The name of the licenses of linked libraries.
const NOTICES: &str = "THIRD-PARTY.txt";
/// Documents that Debian compresses, as it does manual pages.
const COMPRESSED: &[&str] = &["changelog", NOTICES];

/// A file.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Its permissions.
    pub mode: u32,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// Files by their paths, without a slash at the start. All belong to root.
#[derive(Debug, Default)]
pub struct Tree(pub BTreeMap<String, File>);

impl Tree {
    /// Collects the files of a product: the binary, what it writes for packages, documents, and the
    /// optional program if there is one.
    pub fn of_program(product: &Product, binary: &Path, optional: Option<&Path>) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        output_of(Command::new(binary).arg("package-files").arg(folder.path()))?;
        tree.add_folder(folder.path(), "")?;
        let mut programs = vec![(product.name, binary)];
        programs.extend(
            product
                .optional
                .as_ref()
                .map(|program| program.name)
                .zip(optional),
        );
        let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
        tree.add_documents(product, deps::notices_of(&names)?)?;
        tree.compress()?;
        for (name, program) in programs {
            tree.add(format!("usr/bin/{name}"), 0o755, read(program)?);
        }
        Ok(tree)
    }

    /// Collects the debug information, at the path where debuggers search it.
    pub fn of_debug_information(split: &Split) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let (first, rest) = split
            .build_id
            .split_at_checked(2)
            .ok_or("the build id is too short")?;
        let path = format!("usr/lib/debug/.build-id/{first}/{rest}.debug");
        tree.add(path, 0o644, read(&split.debug)?);
        Ok(tree)
    }

    /// Adds a file.
    pub fn add(&mut self, path: String, mode: u32, bytes: Vec<u8>) {
        self.0.insert(path, File { mode, bytes });
    }

    /// Returns the folders that contain the files, each after its own folder.
    pub fn folders(&self) -> BTreeSet<&str> {
        let slashes = |path: &'_ str| path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        self.0
            .keys()
            .flat_map(|path| slashes(path).into_iter().map(|at| &path[..at]))
            .collect()
    }

    /// Returns the size of all files in bytes.
    pub fn size(&self) -> usize {
        self.0.values().map(|file| file.bytes.len()).sum()
    }

    fn add_documents(&mut self, product: &Product, notices: String) -> Result<(), Failure> {
        let folder = format!("{DOCUMENTS}/{}", product.name);
        for (file, name) in product.documents {
            self.add(format!("{folder}/{name}"), 0o644, read(Path::new(file))?);
        }
        self.add(format!("{folder}/{NOTICES}"), 0o644, notices.into());
        self.add(format!("{folder}/copyright"), 0o644, product.copyright.into());
        Ok(())
    }

    fn add_folder(&mut self, root: &Path, folder: &str) -> Result<(), Failure> {
        let place = root.join(folder);
        let entries = fs::read_dir(&place).map_err(|error| cannot("read", &place, &error))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = match folder {
                "" => name,
                _ => format!("{folder}/{name}"),
            };
            if entry.path().is_dir() {
                self.add_folder(root, &path)?;
            } else {
                self.add(path, 0o644, read(&entry.path())?);
            }
        }
        Ok(())
    }

    /// Compresses manual pages and long documents.
    fn compress(&mut self) -> Result<(), Failure> {
        let is_compressed = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            path.starts_with("usr/share/man/") || COMPRESSED.contains(&name)
        };
        let paths: Vec<String> = self
            .0
            .keys()
            .filter(|path| is_compressed(path))
            .cloned()
            .collect();
        for path in paths {
            if let Some(file) = self.0.remove(&path) {
                self.add(format!("{path}.gz"), file.mode, gzip(&file.bytes)?);
            }
        }
        Ok(())
    }
}

/// Compresses bytes, always to the same result.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .map_err(|error| format!("cannot compress: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_their_contents() {
        let mut tree = Tree::default();
        tree.add("usr/bin/a".to_owned(), 0o755, vec![1; 10]);
        tree.add("etc/b".to_owned(), 0o644, vec![2; 5]);
        let folders: Vec<&str> = tree.folders().into_iter().collect();
        assert_eq!(folders, ["etc", "usr", "usr/bin"]);
        assert_eq!(tree.size(), 15);
    }

    #[test]
    fn manual_pages_are_compressed_and_others_are_not() {
        let mut tree = Tree::default();
        tree.add("usr/share/man/man1/a.1".to_owned(), 0o644, b"page".to_vec());
        tree.add(
            "usr/share/doc/backtrail/README.md".to_owned(),
            0o644,
            b"text".to_vec(),
        );
        tree.compress().unwrap();
        let paths: Vec<&str> = tree.0.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            ["usr/share/doc/backtrail/README.md", "usr/share/man/man1/a.1.gz"]
        );
        assert_eq!(gzip(b"page").unwrap(), gzip(b"page").unwrap());
    }
}
