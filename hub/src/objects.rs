//! The object store: bundles, modules and the journal, in a directory or a bucket.
//!
//! | key | content |
//! |---|---|
//! | `blobs/SHA256` | a module, a debug file, or a bundle without its modules |
//! | `crashes/ID/crash.json` | the report and the list of blobs of one bundle |
//! | `crashes/ID/removed.json` | the same of a bundle that was removed |
//! | `crashes/ID/analysis.json` | what the child process read in the bundle |
//! | `crashes/ID/branches.json` | the branches of the bundle, for comparisons of builds |
//! | `journal/DAY/HOUR/NAME.jsonl` | reports and first runs of builds, one JSON object a line |
//! | `uploads/ID/NAME` | a part of an upload |
//! | `builds/BUILDID/NAME.json` | the description of a debug file that came without a bundle |
//! | `chunks/SHA1` | a chunk of a debug file |
//! | `profiles/kind=TABLE/date=DAY/hour=HOUR/ID.parquet` | a table of a segment of profiles |
//! | `symbols/BUILDID.gsym`, `.types` | the index of a build |
//! | `symbols/BUILDID.json` | which files the index was made of, or why there is none |

pub mod bucket;

use crate::error::{Error, Result};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Files above this size are sent in parts, so that memory stays bounded.
const PART: usize = 8 << 20;
/// Parts of one file that are on their way at once.
const PARTS_IN_FLIGHT: usize = 2;
/// Attempts of a request that the store's own client does not repeat, because it cannot know
/// whether the server did it.
const ATTEMPTS: u32 = 4;
/// The pause before the second attempt. Each further one doubles it.
const PAUSE: Duration = Duration::from_millis(100);

/// The object store.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    /// The directory of a local store, whose files are flushed to the disk.
    directory: Option<PathBuf>,
}

/// An object's key, size and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: String,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change, in microseconds since 1970.
    pub changed: i64,
}

impl Objects {
    /// Opens a directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn directory(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::file("create", path))?;
        let path = fs::canonicalize(path).map_err(Error::file("open", path))?;
        let store = LocalFileSystem::new_with_prefix(&path).map_err(failed("the directory"))?;
        Ok(Self {
            store: Arc::new(store),
            directory: Some(path),
        })
    }

    /// Uses a bucket.
    #[must_use]
    pub fn bucket(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            directory: None,
        }
    }

    /// Writes an object. An existing one is replaced.
    ///
    /// # Errors
    /// Fails if the store fails. Nothing is visible then.
    pub async fn put(&self, key: &str, content: impl Into<Bytes>) -> Result<()> {
        let payload = PutPayload::from_bytes(content.into());
        self.store
            .put(&Key::from(key), payload)
            .await
            .map_err(failed(key))?;
        self.flush(key).await
    }

    /// Stores a file by its content, and returns its SHA-256. A file that is there already is not
    /// sent again.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the store fails.
    pub async fn put_file(&self, path: &Path) -> Result<(String, u64)> {
        let (digest, size) = digest_of(path).await?;
        self.put_file_as(path, &digest, size).await?;
        Ok((digest, size))
    }

    /// Stores a file whose SHA-256 and size are known.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the store fails.
    pub async fn put_file_as(&self, path: &Path, digest: &str, size: u64) -> Result<()> {
        let key = blob(digest);
        if self.size(&key).await? == Some(size) {
            return Ok(());
        }
        self.put_file_at(&key, path).await
    }

    /// Sends a file: a small one at once, a large one in parts.
    async fn put_file_at(&self, key: &str, path: &Path) -> Result<()> {
        let file = File::open(path).map_err(Error::file("open", path))?;
        let size = file.metadata().map_err(Error::file("read", path))?.len();
        if size <= PART as u64 {
            let (_, content) = read_piece(file, path.to_owned()).await?;
            return self.put(key, content).await;
        }
        drop(file);
        let mut attempt = 1;
        while let Err(error) = self.put_parts(key, path).await {
            // The parts may be an object although the answer was lost.
            if self.size(key).await.ok().flatten() == Some(size) {
                break;
            }
            let is_last = attempt == ATTEMPTS || !matches!(error, Error::Object { .. });
            if self.directory.is_some() || is_last {
                return Err(error);
            }
            pause(&mut attempt).await;
        }
        self.flush(key).await
    }

    /// Sends a file in parts. The store removes the parts of a failed attempt.
    async fn put_parts(&self, key: &str, path: &Path) -> Result<()> {
        let place = Key::from(key);
        let upload = self.store.put_multipart(&place).await.map_err(failed(key))?;
        let mut write = WriteMultipart::new_with_chunk_size(upload, PART);
        let mut sent = send_pieces(&mut write, key, path).await;
        if sent.is_ok() {
            sent = write.wait_for_capacity(0).await.map_err(failed(key));
        }
        if let Err(error) = sent {
            // Parts without an object cost as much as one.
            let _ = write.abort().await;
            return Err(error);
        }
        write.finish().await.map_err(failed(key))?;
        Ok(())
    }

    /// Copies a file to an object of a key, and returns the number of bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the store fails.
    pub async fn put_copy(&self, key: &str, path: &Path) -> Result<u64> {
        let size = fs::metadata(path).map_err(Error::file("read", path))?.len();
        self.put_file_at(key, path).await?;
        Ok(size)
    }

    /// Reads an object. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let found = match self.store.get(&Key::from(key)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(key)(error)),
        };
        Ok(Some(found.bytes().await.map_err(failed(key))?))
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// Fails if there is no such object, or the store fails.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.store
            .get_range(&Key::from(key), range)
            .await
            .map_err(failed(key))
    }

    /// Copies an object to the end of a file. Returns the number of bytes, `None` if there is none.
    ///
    /// # Errors
    /// Fails if the store or the file fails.
    pub async fn append_to(&self, key: &str, file: &mut tokio::fs::File) -> Result<Option<u64>> {
        use tokio::io::AsyncWriteExt;
        let Some((size, content)) = self.stream(key).await? else {
            return Ok(None);
        };
        let mut content = std::pin::pin!(content);
        while let Some(piece) = content.try_next().await.map_err(failed(key))? {
            file.write_all(&piece)
                .await
                .map_err(Error::system("write a copy of an object"))?;
        }
        file.flush()
            .await
            .map_err(Error::system("write a copy of an object"))?;
        Ok(Some(size))
    }

    /// Makes a new file with the content of an object. Returns `false` if there is no such object.
    ///
    /// In a local store, the new file is another name of the same file.
    ///
    /// # Errors
    /// Fails if the store or the file fails.
    pub async fn copy_to(&self, key: &str, target: &Path) -> Result<bool> {
        if let Some(directory) = &self.directory
            && tokio::fs::hard_link(directory.join(key), target).await.is_ok()
        {
            return Ok(true);
        }
        let mut file = tokio::fs::File::create_new(target)
            .await
            .map_err(Error::file("create", target))?;
        Ok(self.append_to(key, &mut file).await?.is_some())
    }

    /// Returns a range of an object as a stream. `None`: there is no such object.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn stream_range(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> Result<Option<impl Stream<Item = object_store::Result<Bytes>> + Send + 'static>> {
        let Some(size) = self.size(key).await? else {
            return Ok(None);
        };
        let range = range.start.min(size)..range.end.min(size);
        Ok(Some(pieces(self.store.clone(), Key::from(key), range)))
    }

    /// Returns the content of an object as a stream, with its size. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn stream(
        &self,
        key: &str,
    ) -> Result<
        Option<(
            u64,
            impl Stream<Item = object_store::Result<Bytes>> + Send + 'static,
        )>,
    > {
        let Some(size) = self.size(key).await? else {
            return Ok(None);
        };
        Ok(Some((size, pieces(self.store.clone(), Key::from(key), 0..size))))
    }

    /// Returns the size of an object. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn size(&self, key: &str) -> Result<Option<u64>> {
        match self.store.head(&Key::from(key)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(key)(error)),
        }
    }

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let mut attempt = 1;
        loop {
            match self.store.delete(&Key::from(key)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => return Ok(()),
                Err(_) if self.directory.is_none() && attempt < ATTEMPTS => pause(&mut attempt).await,
                Err(error) => return Err(failed(key)(error)),
            }
        }
    }

    /// Lists the objects below a prefix.
    pub fn list(&self, prefix: &str) -> impl Stream<Item = Result<Listed>> + Send + 'static {
        let owned = prefix.to_owned();
        self.store
            .list(Some(&Key::from(prefix)))
            .map_ok(|meta| Listed {
                key: meta.location.to_string(),
                size: meta.size,
                changed: meta.last_modified.timestamp_micros(),
            })
            .map_err(move |error| failed(&owned)(error))
    }

    /// Returns the objects below a prefix, for a part that has keys of its own.
    #[must_use]
    pub fn below(&self, prefix: &str) -> Arc<dyn ObjectStore> {
        Arc::new(PrefixStore::new(self.store.clone(), prefix))
    }

    /// Flushes an object of a local store, and the directories above it, to the disk. A bucket does
    /// so itself.
    ///
    /// # Errors
    /// Fails if the object does not exist or cannot be flushed.
    pub async fn flush(&self, key: &str) -> Result<()> {
        let Some(directory) = self.directory.clone() else {
            return Ok(());
        };
        let path = directory.join(key);
        blocking(move || {
            let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
            sync(&path).map_err(Error::file("flush", &path))?;
            // Each of them may be new.
            for parent in path
                .ancestors()
                .skip(1)
                .take_while(|one| one.starts_with(&directory))
            {
                sync(parent).map_err(Error::file("flush", parent))?;
            }
            Ok(())
        })
        .await
    }

    /// Removes files of a local store that were being written when a hub was killed before a time.
    /// Returns their number. A bucket has a rule of its own for such parts.
    ///
    /// # Errors
    /// Fails if a directory cannot be read or a file cannot be removed.
    pub async fn remove_unfinished(&self, before: SystemTime) -> Result<u64> {
        let Some(directory) = self.directory.clone() else {
            return Ok(0);
        };
        blocking(move || {
            let mut removed = 0;
            let mut folders = vec![directory];
            while let Some(folder) = folders.pop() {
                let entries = fs::read_dir(&folder).map_err(Error::file("read", &folder))?;
                for entry in entries.flatten() {
                    let Ok(metadata) = entry.metadata() else { continue };
                    if metadata.is_dir() {
                        folders.push(entry.path());
                    } else if is_unfinished(&entry.file_name().to_string_lossy())
                        && metadata.modified().is_ok_and(|time| time < before)
                    {
                        let path = entry.path();
                        fs::remove_file(&path).map_err(Error::file("remove", &path))?;
                        removed += 1;
                    }
                }
            }
            Ok(removed)
        })
        .await
    }
}

/// Returns whether a file of a local store has the name that it has before it is whole.
fn is_unfinished(name: &str) -> bool {
    name.rsplit_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a file, and adds its pieces to an object in parts.
async fn send_pieces(write: &mut WriteMultipart, key: &str, path: &Path) -> Result<()> {
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    loop {
        let (back, piece) = read_piece(file, path.to_owned()).await?;
        if piece.is_empty() {
            return Ok(());
        }
        file = back;
        write
            .wait_for_capacity(PARTS_IN_FLIGHT)
            .await
            .map_err(failed(key))?;
        write.put(piece);
    }
}

/// Returns a range of an object in pieces. Each is a request of its own, so that a long transfer is
/// no single request, which has a time limit.
fn pieces(
    store: Arc<dyn ObjectStore>,
    key: Key,
    range: Range<u64>,
) -> impl Stream<Item = object_store::Result<Bytes>> + Send + 'static {
    stream::try_unfold(range, move |left| {
        let (store, key) = (store.clone(), key.clone());
        async move {
            if left.is_empty() {
                return Ok(None);
            }
            let end = left.end.min(left.start + PART as u64);
            let piece = store.get_range(&key, left.start..end).await?;
            let next = left.start + piece.len() as u64..left.end;
            Ok::<_, object_store::Error>((!piece.is_empty()).then_some((piece, next)))
        }
    })
}

/// Waits before the next attempt, and counts it.
async fn pause(attempt: &mut u32) {
    tokio::time::sleep(PAUSE * 2_u32.pow(*attempt)).await;
    *attempt += 1;
}

/// Returns the key of a blob.
#[must_use]
pub fn blob(sha256: &str) -> String {
    format!("blobs/{sha256}")
}

/// Returns the key of the description of a crash.
#[must_use]
pub fn crash(id: &str) -> String {
    format!("crashes/{id}/crash.json")
}

/// Returns the key of the description of a crash whose bundle was removed.
#[must_use]
pub fn removed_crash(id: &str) -> String {
    format!("crashes/{id}/removed.json")
}

/// Returns the key of the analysis of a crash.
#[must_use]
pub fn analysis(id: &str) -> String {
    format!("crashes/{id}/analysis.json")
}

/// Returns the key of the branches of a stored bundle.
#[must_use]
pub fn branches(id: &str) -> String {
    format!("crashes/{id}/branches.json")
}

/// Returns the key of a part of an upload.
#[must_use]
pub fn part(upload: &str, name: &str) -> String {
    format!("uploads/{upload}/{name}")
}

/// Returns the key of a chunk of a debug file.
#[must_use]
pub fn chunk(sha1: &str) -> String {
    format!("chunks/{sha1}")
}

/// Returns the key of a part of a build's index: `gsym`, `types` or `json`.
#[must_use]
pub fn symbols(build_id: &str, part: &str) -> String {
    format!("symbols/{build_id}.{part}")
}

/// Returns the key of the description of a file of a build that came without a bundle.
#[must_use]
pub fn build_file(build_id: &str, name: &str) -> String {
    format!("builds/{build_id}/{name}.json")
}

/// Returns bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Returns the SHA-256 and the size of a file.
///
/// # Errors
/// Fails if the file cannot be read.
pub async fn digest_of(path: &Path) -> Result<(String, u64)> {
    let path = path.to_owned();
    blocking(move || digest_of_file(&path)).await
}

/// Returns the SHA-256 and the size of a file, on a thread that may block.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn digest_of_file(path: &Path) -> Result<(String, u64)> {
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer).map_err(Error::file("read", path))?;
        if read == 0 {
            return Ok((hexadecimal(&digest.finalize()), size));
        }
        digest.update(&buffer[..read]);
        size += read as u64;
    }
}

/// Reads the next piece of a file. An empty one is the end.
async fn read_piece(mut file: File, path: PathBuf) -> Result<(File, Bytes)> {
    blocking(move || {
        let mut piece = Vec::new();
        (&mut file)
            .take(PART as u64)
            .read_to_end(&mut piece)
            .map_err(Error::file("read", &path))?;
        Ok((file, Bytes::from(piece)))
    })
    .await
}

/// Runs file operations on a thread that may block.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::System {
            action: "finish a file operation",
            source: std::io::Error::other(error),
        })?
}

fn failed(key: &str) -> impl FnOnce(object_store::Error) -> Error {
    let key = key.to_owned();
    move |source| Error::Object {
        key,
        reason: bucket::reason(&source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn equal_files_are_one_blob() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::directory(&folder.path().join("objects")).unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, b"module").unwrap();
        fs::write(&two, b"module").unwrap();
        let first = objects.put_file(&one).await.unwrap();
        assert_eq!(first, objects.put_file(&two).await.unwrap());
        assert_eq!(first.1, 6);
        let listed: Vec<_> = objects.list("blobs").try_collect().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(objects.get(&blob(&first.0)).await.unwrap().unwrap(), "module");
    }

    #[tokio::test]
    async fn files_of_many_parts_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::directory(&folder.path().join("objects")).unwrap();
        let big = folder.path().join("big");
        let content: Vec<u8> = (0..3 * PART + 17).map(|at| (at % 251) as u8).collect();
        fs::write(&big, &content).unwrap();
        let (digest, size) = objects.put_file(&big).await.unwrap();
        assert_eq!(size, content.len() as u64);
        let copy = folder.path().join("copy");
        let mut file = tokio::fs::File::create(&copy).await.unwrap();
        assert_eq!(
            objects.append_to(&blob(&digest), &mut file).await.unwrap(),
            Some(size)
        );
        assert_eq!(fs::read(&copy).unwrap(), content);
    }

    #[tokio::test]
    async fn absent_objects_are_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::directory(folder.path()).unwrap();
        objects.put("journal/a", "one").await.unwrap();
        assert_eq!(objects.get("journal/a").await.unwrap().unwrap(), "one");
        assert_eq!(objects.get("journal/b").await.unwrap(), None);
        objects.delete("journal/b").await.unwrap();
    }

    #[tokio::test]
    async fn files_of_a_killed_hub_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::directory(folder.path()).unwrap();
        objects.put("blobs/a", "whole").await.unwrap();
        fs::write(folder.path().join("blobs/b#1"), "part").unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        let early = SystemTime::UNIX_EPOCH;
        assert_eq!(objects.remove_unfinished(early).await.unwrap(), 0);
        assert_eq!(objects.remove_unfinished(later).await.unwrap(), 1);
        assert_eq!(objects.get("blobs/a").await.unwrap().unwrap(), "whole");
    }
}
