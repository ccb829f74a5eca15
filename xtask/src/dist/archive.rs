//! Tar archives of a package's files, all owned by root.

use super::tree::Tree;
use crate::Failure;
use std::io;
use tar::{Builder, EntryType, Header};

/// Returns an archive with the files below `prefix`, which is empty or ends with a slash.
pub fn tar(tree: &Tree, prefix: &str, time: u64) -> Result<Vec<u8>, Failure> {
    let mut archive = Builder::new(Vec::new());
    let added = (|| {
        if !prefix.is_empty() {
            append(&mut archive, prefix, EntryType::Directory, 0o755, time, &[])?;
        }
        for folder in tree.folders() {
            let path = format!("{prefix}{folder}/");
            append(&mut archive, &path, EntryType::Directory, 0o755, time, &[])?;
        }
        for (path, file) in &tree.0 {
            let path = format!("{prefix}{path}");
            append(
                &mut archive,
                &path,
                EntryType::Regular,
                file.mode,
                time,
                &file.bytes,
            )?;
        }
        archive.into_inner()
    })();
    added.map_err(|error| format!("cannot make an archive: {error}"))
}

fn append(
    archive: &mut Builder<Vec<u8>>,
    path: &str,
    kind: EntryType,
    mode: u32,
    time: u64,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    // `set_path` drops the `./` at the start, which Debian's tools write.
    let name = header.as_old_mut().name.get_mut(..path.len());
    let name = name.ok_or_else(|| io::Error::other(format!("the path {path} is too long")))?;
    name.copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_cksum();
    archive.append(&header, bytes)
}

/// Compresses bytes with zstd, at the highest level that decompresses with little memory.
pub fn zstd(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    zstd::encode_all(bytes, 19).map_err(|error| format!("cannot compress: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn too_long_path_is_refused() {
        let mut tree = Tree::default();
        tree.add("a".repeat(101), 0o644, Vec::new());
        assert!(tar(&tree, "", 0).unwrap_err().contains("too long"));
    }

    #[test]
    fn archive_has_folders_files_and_modes() {
        let mut tree = Tree::default();
        tree.add("usr/bin/a".to_owned(), 0o755, b"program".to_vec());
        tree.add("etc/b".to_owned(), 0o644, b"text".to_vec());
        let bytes = zstd(&tar(&tree, "top/", 7).unwrap()).unwrap();
        let bytes = zstd::decode_all(bytes.as_slice()).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 7));
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            found.push((path, header.mode().unwrap(), text));
        }
        let seen = |path: &str, mode, text: &str| (path.to_owned(), mode, text.to_owned());
        assert_eq!(
            found,
            [
                seen("top/", 0o755, ""),
                seen("top/etc/", 0o755, ""),
                seen("top/usr/", 0o755, ""),
                seen("top/usr/bin/", 0o755, ""),
                seen("top/etc/b", 0o644, "text"),
                seen("top/usr/bin/a", 0o755, "program"),
            ]
        );
    }
}
