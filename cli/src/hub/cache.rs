//! Downloaded bundles, kept below the user's cache directory up to a size.
//!
//! The bundle of a crash does not change. Its file has the digest in its name, and a file that no
//! longer has this digest is downloaded again.

use super::{settings, transfer};
use crate::cache_directory;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use backtrail_report::client::{CrashLink, Download, Error, HubClient};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most bytes that are kept.
const MAX_CACHE: u64 = 8 << 30;
/// The largest bundle that is downloaded, in bytes.
const MAX_BUNDLE: u64 = 32 << 30;
/// The ending of a kept file.
const ENDING: &str = ".btz";

/// Returns the file with the bundle of a crash, which is downloaded if necessary.
pub fn bundle(link: &CrashLink, allows_http: bool, interrupt: &Interrupt) -> Result<PathBuf, Failure> {
    let directory =
        directory().ok_or_else(|| Failure::failed("HOME is not set, so there is no place for the bundle"))?;
    let failed = |action: &str, path: &Path, error: std::io::Error| {
        Failure::failed(format_args!("cannot {action} {}: {error}", path.display()))
    };
    fs::create_dir_all(&directory).map_err(|error| failed("create", &directory, error))?;
    let prefix = format!("{}-{}-", key_of(link), link.id);
    if let Some(path) = kept(&directory, &prefix) {
        return Ok(path);
    }
    let client = settings::client_of(&link.hub, allows_http)?;
    let file =
        tempfile::NamedTempFile::new_in(&directory).map_err(|error| failed("write to", &directory, error))?;
    let digest = download(
        &client,
        link,
        file.reopen()
            .map_err(|error| failed("open", file.path(), error))?,
        interrupt,
    )?;
    let path = directory.join(format!("{prefix}{digest}{ENDING}"));
    file.persist(&path)
        .map_err(|error| failed("create", &path, error.error))?;
    evict(&directory, &path, MAX_CACHE);
    Ok(path)
}

fn download(
    client: &HubClient,
    link: &CrashLink,
    file: File,
    interrupt: &Interrupt,
) -> Result<String, Failure> {
    let (client, id) = (client.clone(), link.id.clone());
    transfer::run(interrupt, "downloading", move |progress| {
        let download = Download {
            id: &id,
            file: &file,
            limit: MAX_BUNDLE,
        };
        let digest = client.download(download, &mut |done, total| {
            progress.update(done, total.unwrap_or(0))
        })?;
        file.sync_all().map_err(|source| Error::File {
            action: "write",
            source,
        })?;
        Ok(digest)
    })
}

/// Returns the kept bundle, if it is intact.
fn kept(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let names = fs::read_dir(directory).ok()?.flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| name.starts_with(prefix) && name.ends_with(ENDING))?;
    let path = directory.join(&name);
    let wanted = name.strip_prefix(prefix)?.strip_suffix(ENDING)?;
    if digest_of(&path).ok()? != wanted {
        let _ = fs::remove_file(&path);
        return None;
    }
    // The time of the last use decides which file is removed first.
    let file = File::options().append(true).open(&path).ok()?;
    let _ = file.set_modified(SystemTime::now());
    Some(path)
}

fn digest_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut piece)?;
        match piece.get(..read) {
            Some(read) if !read.is_empty() => digest.update(read),
            _ => return Ok(hexadecimal(&digest.finalize())),
        }
    }
}

/// Removes the files that were not used for the longest time, until the others have at most `most`
/// bytes. `newest` stays.
fn evict(directory: &Path, newest: &Path, most: u64) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .filter(|(.., path)| path.to_string_lossy().ends_with(ENDING))
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= most {
            break;
        }
        if path != newest && fs::remove_file(&path).is_ok() {
            total -= size;
        }
    }
}

/// Returns the start of the digest of a hub's address, which keeps the crashes of hubs apart.
fn key_of(link: &CrashLink) -> String {
    let digest = Sha256::digest(link.hub.origin());
    hexadecimal(digest.get(..8).unwrap_or_default())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn directory() -> Option<PathBuf> {
    cache_directory::path("crashes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn damaged_file_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let path = directory.path().join(format!("a-{digest}.btz"));
        fs::write(&path, "hello").unwrap();
        assert_eq!(kept(directory.path(), "a-"), Some(path.clone()));
        assert_eq!(kept(directory.path(), "b-"), None);
        fs::write(&path, "hellO").unwrap();
        assert_eq!(kept(directory.path(), "a-"), None);
        assert!(!path.exists());
    }

    #[test]
    fn files_unused_for_longest_are_removed_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (age, name) in [(30, "old.btz"), (20, "other"), (10, "mid.btz"), (40, "new.btz")] {
            fs::write(path(name), "1234").unwrap();
            let file = File::options().append(true).open(path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
        }
        evict(directory.path(), &path("new.btz"), 8);
        assert!(!path("old.btz").exists());
        assert!(path("mid.btz").exists() && path("new.btz").exists() && path("other").exists());
        evict(directory.path(), &path("new.btz"), 0);
        assert!(!path("mid.btz").exists() && path("new.btz").exists());
    }
}
