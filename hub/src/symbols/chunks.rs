//! Uploads of debug files in chunks, as Sentry's clients send them.

use super::debug_id::debug_id;
use super::store::{self, Expected, Refusal};
use crate::clock::{DAY, HOUR, SECOND};
use crate::database::chunks::{self, Assembly, AssemblyState};
use crate::database::jobs::{self, Job};
use crate::database::{Database, transact};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::{Objects, blocking, chunk, hexadecimal};
use bytes::Bytes;
use flate2::read::GzDecoder;
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// The largest chunk in bytes.
pub const CHUNK: usize = 4 << 20;
/// The life of a chunk.
const LIFETIME: i64 = DAY;
/// The life of a chunk after its file is stored. Another file may share it.
const REST: i64 = HOUR;
/// The time for which a refusal is repeated without a new look.
const REFUSED: i64 = 60 * SECOND;
/// The most chunks that one request or sweep removes between two queries.
const SWEEP: i64 = 32;
/// The longest identifier of a file in bytes.
const MAX_DEBUG_ID: usize = 100;
/// The most chunks of all files in a request.
const MAX_CHUNKS: usize = 1 << 14;
/// The most files in a request.
const MAX_FILES: usize = 1000;

/// The state of a file, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// These chunks are missing.
    Missing(Vec<String>),
    /// A job makes the file.
    Assembling,
    /// Stored, with this build id and name.
    Stored(String, String),
    /// Refused, with the reason.
    Refused(String),
}

/// A file to assemble from chunks.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name.
    pub name: String,
    /// The identifier that the client read in the file.
    pub debug_id: Option<String>,
    /// The SHA-1 of each chunk, in order.
    pub chunks: Vec<String>,
}

/// Returns whether a text is a SHA-1 in lower-case hexadecimal digits.
#[must_use]
pub fn is_sha1(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks and stores a chunk.
///
/// # Errors
/// Fails if the chunk is too large, damaged, or not what its SHA-1 says.
pub async fn add(hub: &Hub, sha1: &str, bytes: Bytes, is_gzip: bool) -> Result<()> {
    if !is_sha1(sha1) {
        return Err(Error::Invalid(
            "the file name of a chunk is its SHA-1 in 40 lower-case hexadecimal digits".to_owned(),
        ));
    }
    let wanted = sha1.to_owned();
    let content = blocking(move || {
        let content = if is_gzip { gunzip(&bytes)? } else { bytes };
        if content.is_empty() || content.len() > CHUNK {
            return Err(too_large());
        }
        if hexadecimal(&Sha1::digest(&content)) != wanted {
            return Err(Error::Invalid(format!(
                "the content of chunk {wanted} has another SHA-1"
            )));
        }
        Ok(content)
    })
    .await?;
    let size = content.len() as i64;
    let key = chunk(sha1);
    hub.objects.put(&key, content.clone()).await?;
    hub.database.note_chunk(sha1, size, LIFETIME).await?;
    if hub.objects.size(&key).await?.is_none() {
        // Garbage collection removed the earlier object of this name.
        hub.objects.put(&key, content).await?;
    }
    Ok(())
}

fn too_large() -> Error {
    Error::Invalid(format!("a chunk has 1 to {CHUNK} bytes when it is unpacked"))
}

/// Unpacks a chunk, and stops at the limit.
fn gunzip(packed: &[u8]) -> Result<Bytes> {
    let mut content = Vec::new();
    GzDecoder::new(packed)
        .take(CHUNK as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|error| Error::Invalid(format!("a chunk cannot be unpacked: {error}")))?;
    if content.len() > CHUNK {
        return Err(too_large());
    }
    Ok(content.into())
}

/// Removes chunks whose life ended long before a time. Returns their number.
///
/// # Errors
/// Fails if the database or the object store fails.
pub async fn sweep(database: &Database, store: &Objects, now: i64) -> Result<u64> {
    let mut removed = 0;
    loop {
        let expired = database.expired_chunks(now - HOUR, SWEEP).await?;
        let before = removed;
        for sha1 in expired {
            // A chunk that came again in between stays. One that comes during the transaction waits
            // for its end, and is then written again.
            let is_removed = transact!(database, connection => {
                let is_expired = chunks::delete(connection, &sha1, now - HOUR).await?;
                if is_expired {
                    store.delete(&chunk(&sha1)).await?;
                }
                Ok(is_expired)
            })?;
            removed += u64::from(is_removed);
        }
        if removed == before {
            return Ok(removed);
        }
    }
}

/// Returns the state of each file, and begins to make those whose chunks are all there.
///
/// # Errors
/// Fails if the request is malformed, or the database fails.
pub async fn assemble(
    hub: &Hub,
    sender: &str,
    wanted: BTreeMap<String, Wanted>,
) -> Result<BTreeMap<String, FileState>> {
    if wanted.len() > MAX_FILES {
        return Err(Error::Invalid(format!(
            "a request names at most {MAX_FILES} files"
        )));
    }
    if wanted.values().map(|file| file.chunks.len()).sum::<usize>() > MAX_CHUNKS {
        return Err(Error::Invalid(format!(
            "a request names at most {MAX_CHUNKS} chunks"
        )));
    }
    let mut states = BTreeMap::new();
    for (sha1, wanted) in wanted {
        if !is_sha1(&sha1) || !wanted.chunks.iter().all(|chunk| is_sha1(chunk)) {
            return Err(Error::Invalid(
                "files and chunks are named by their SHA-1 in 40 lower-case hexadecimal digits".to_owned(),
            ));
        }
        let debug_id = wanted.debug_id.as_deref().unwrap_or_default();
        if debug_id.len() > MAX_DEBUG_ID || debug_id.chars().any(char::is_control) {
            return Err(Error::Invalid("a `debug_id` is no identifier".to_owned()));
        }
        let state = assemble_one(hub, sender, &sha1, wanted).await?;
        states.insert(sha1, state);
    }
    hub.wake.notify_one();
    Ok(states)
}

async fn assemble_one(hub: &Hub, sender: &str, sha1: &str, wanted: Wanted) -> Result<FileState> {
    if let Some(known) = hub.database.assembly(sha1).await?
        && let Some(state) = known_state(hub, known).await?
    {
        return Ok(state);
    }
    let (mut missing, mut size) = (Vec::new(), 0_u64);
    for chunk in &wanted.chunks {
        match hub.database.chunk_size(chunk).await? {
            Some(found) => size = size.saturating_add(found.unsigned_abs()),
            None => missing.push(chunk.clone()),
        }
    }
    if !missing.is_empty() || wanted.chunks.is_empty() {
        return Ok(FileState::Missing(missing));
    }
    let limit = hub.config.limits.bundle_bytes;
    if size > limit {
        let text = format!("the file has {size} bytes; this hub takes {limit}");
        return Ok(FileState::Refused(text));
    }
    hub.database.set_chunk_lives(&wanted.chunks, LIFETIME).await?;
    let new = Assembly {
        sha1: sha1.to_owned(),
        name: store::plain_name(&wanted.name),
        debug_id: wanted.debug_id,
        chunks: wanted.chunks,
        sender: sender.to_owned(),
        state: AssemblyState::Assembling,
        detail: None,
        build_id: None,
        changed: 0,
    };
    hub.database.begin_assembly(&new).await?;
    Ok(FileState::Assembling)
}

/// Returns the state of a known assembly. `None`: it must be made again.
async fn known_state(hub: &Hub, known: Assembly) -> Result<Option<FileState>> {
    Ok(match known.state {
        AssemblyState::Assembling => Some(FileState::Assembling),
        AssemblyState::Refused if known.changed + REFUSED > crate::clock::now() => {
            Some(FileState::Refused(known.detail.unwrap_or_default()))
        }
        AssemblyState::Refused => None,
        AssemblyState::Stored => {
            let build_id = known.build_id.unwrap_or_default();
            // Retention may have removed the file.
            hub.database
                .has_build(&build_id)
                .await?
                .then_some(FileState::Stored(build_id.clone(), known.name))
        }
    })
}

/// Makes a file of its chunks, checks it in a child process, and stores it.
///
/// # Errors
/// Fails if the hub itself fails. A refused file is no error: the client sees the reason.
pub async fn make(hub: &Hub, job: &Job) -> Result<()> {
    let Some(assembly) = hub.database.assembly(&job.subject).await? else {
        return hub.database.finish_job(job).await;
    };
    let folder = hub.work_folder("assemble-").await?;
    let path = folder.path().join("file");
    match check(hub, &assembly, &path).await {
        Ok(file) => {
            let keys = transact!(hub.database, connection => {
                jobs::finish(connection, job).await?;
                chunks::end_assembly(connection, &assembly.sha1, Ok(&file.build_id)).await?;
                store::record(connection, &file).await
            })?;
            let id = debug_id(&file.build_id).unwrap_or_default();
            tracing::info!(
                "stored {} of build {} ({id}) for {keys} stack keys",
                file.name,
                file.build_id
            );
            hub.database
                .log_action(&assembly.sender, "upload debug file", &file.build_id)
                .await?;
            hub.database.set_chunk_lives(&assembly.chunks, REST).await?;
            hub.wake.notify_one();
            Ok(())
        }
        Err(Refusal::File(reason)) => {
            tracing::info!("refused the debug file {}: {reason}", assembly.sha1);
            hub.database.refuse_assembly(job, &assembly.sha1, &reason).await
        }
        Err(Refusal::Hub(error)) => Err(error),
    }
}

async fn check(
    hub: &Hub,
    assembly: &Assembly,
    path: &Path,
) -> std::result::Result<store::StoredFile, Refusal> {
    let mut file = tokio::fs::File::create_new(path)
        .await
        .map_err(Error::file("create", path))?;
    for sha1 in &assembly.chunks {
        if hub.objects.append_to(&chunk(sha1), &mut file).await?.is_none() {
            let text = "a chunk was removed meanwhile; upload the file again";
            return Err(Refusal::File(text.to_owned()));
        }
    }
    drop(file);
    let (read, wanted) = (path.to_owned(), assembly.sha1.clone());
    blocking(move || {
        let mut digest = Sha1::new();
        let mut file = std::fs::File::open(&read).map_err(Error::file("open", &read))?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = file.read(&mut buffer).map_err(Error::file("read", &read))?;
            if count == 0 {
                break;
            }
            digest.update(buffer.get(..count).unwrap_or_default());
        }
        if hexadecimal(&digest.finalize()) == wanted {
            return Ok(());
        }
        Err(Error::Invalid(
            "the chunks do not make the announced file".to_owned(),
        ))
    })
    .await?;
    let expected = assembly
        .debug_id
        .as_deref()
        .map_or(Expected::Any, Expected::DebugId);
    store::put(hub, path, &assembly.name, "upload", expected).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn packed_chunks_are_unpacked_up_to_a_limit() {
        assert_eq!(gunzip(&gzip(b"chunk")).unwrap(), "chunk");
        assert_eq!(gunzip(&gzip(&vec![0; CHUNK])).unwrap().len(), CHUNK);
        let bomb = gzip(&vec![0; 64 * CHUNK]);
        assert!(bomb.len() < 1 << 20);
        let error = gunzip(&bomb).unwrap_err().to_string();
        assert_eq!(error, "a chunk has 1 to 4194304 bytes when it is unpacked");
        assert!(gunzip(b"no gzip").is_err());
        assert!(gunzip(&gzip(b"cut off")[..8]).is_err());
    }

    #[test]
    fn digests_have_forty_lower_case_digits() {
        assert!(is_sha1("b24fd63812bb59a8bc61fb792cd0fb60c3aef119"));
        for text in [
            "",
            "B24FD63812BB59A8BC61FB792CD0FB60C3AEF119",
            "../../../../etc/passwd",
        ] {
            assert!(!is_sha1(text), "{text}");
        }
    }
}
