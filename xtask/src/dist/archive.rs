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
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    // Debian's tools write `./` at the start, which `append_data` drops. Longer paths need a second
    // header, which it adds.
    match header.as_old_mut().name.get_mut(..path.len()) {
        Some(name) => name.copy_from_slice(path.as_bytes()),
        None => return archive.append_data(&mut header, path, bytes),
    }
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
    fn long_paths_are_kept_whole() {
        let mut tree = Tree::default();
        let path = format!("{}/b", "a".repeat(150));
        tree.add(path.clone(), 0o644, b"text".to_vec());
        let bytes = tar(&tree, "top/", 0).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let paths = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().into_owned());
        let expected = [
            "top/".to_owned(),
            format!("top/{}/", "a".repeat(150)),
            format!("top/{path}"),
        ];
        assert_eq!(paths.collect::<Vec<_>>(), expected.map(std::path::PathBuf::from));
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
