//! Resumable uploads by TUS 1.0.0 (<https://tus.io/protocols/resumable-upload>), without HTTP.
//!
//! Each part is an object, so that any hub can continue an upload that another one began.

use crate::clock::HOUR;
use crate::config::Limits;
use crate::database::Database;
use crate::database::reports::BundleState;
use crate::database::tokens::new_id;
use crate::database::uploads::{NewUpload, Upload, UploadKind};
use crate::error::{Error, Result};
use crate::objects::{Objects, digest_of, part};
use crate::symbols::debug_id::is_build_id;
use backtrail_report::ReportId;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt};
use std::path::Path;
use tokio::fs::File;

/// The life of an upload to which nothing is added.
const LIFETIME: i64 = 24 * HOUR;
/// The size of a part in the object store.
const PART: usize = 8 << 20;
/// The most parts of an upload. A cut connection ends one.
const MAX_PARTS: i64 = 10_000;

/// A sender's description of an upload before its first byte.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// Its kind.
    pub kind: UploadKind,
    /// The report or the build id.
    pub subject: &'a str,
    /// The SHA-256 of the whole.
    pub sha256: &'a str,
    /// The size in bytes.
    pub length: u64,
    /// The token.
    pub token: &'a str,
}

/// Begins an upload, or returns the one that was begun.
///
/// # Errors
/// Fails if the wish is malformed or too large, if its report is unknown, or if the hub has its
/// bundle.
pub async fn begin(database: &Database, limits: &Limits, wish: &Wish<'_>) -> Result<Upload> {
    let is_digest = wish.sha256.len() == 64
        && wish
            .sha256
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_digest {
        return Err(Error::Invalid(
            "`sha256` needs 64 lower-case hexadecimal digits".to_owned(),
        ));
    }
    if wish.length > limits.bundle_bytes {
        return Err(Error::TooLarge(format!(
            "the upload has {} bytes; this hub takes {}",
            wish.length, limits.bundle_bytes
        )));
    }
    if wish.length == 0 {
        return Err(Error::Invalid("an upload has at least one byte".to_owned()));
    }
    if wish.kind == UploadKind::Debug && !is_build_id(wish.subject) {
        return Err(Error::Invalid(
            "the `subject` of a debug file is its build id: 4 to 128 lower-case hexadecimal digits"
                .to_owned(),
        ));
    }
    if wish.kind == UploadKind::Bundle {
        // No report has another identifier, and PostgreSQL refuses some texts.
        let is_id = wish.subject.parse::<ReportId>().is_ok();
        if !is_id {
            return Err(Error::Absent("crash of this identifier".to_owned()));
        }
        let report = database.report(wish.subject).await?;
        if matches!(report.bundle, BundleState::Stored | BundleState::Checking) {
            return Err(Error::Conflict(format!(
                "the hub has the bundle of crash {} already",
                wish.subject
            )));
        }
    }
    let new = NewUpload {
        kind: wish.kind,
        subject: wish.subject,
        sha256: wish.sha256,
        length: i64::try_from(wish.length).unwrap_or(i64::MAX),
        token: wish.token,
    };
    database.begin_upload(&new, LIFETIME).await
}

/// Adds bytes from the offset on, and returns the upload after them. Bytes that arrived before
/// a connection was cut are kept.
///
/// # Errors
/// Fails if the offset is not the upload's, if more bytes come than were announced, or if another
/// request continues the upload.
pub async fn add<E: std::error::Error>(
    database: &Database,
    objects: &Objects,
    mut upload: Upload,
    offset: u64,
    body: impl Stream<Item = std::result::Result<Bytes, E>>,
) -> Result<Upload> {
    if i64::try_from(offset) != Ok(upload.received) {
        return Err(Error::Conflict(format!(
            "the upload continues at {}, not at {offset}",
            upload.received
        )));
    }
    let mut body = std::pin::pin!(body);
    let mut piece = BytesMut::new();
    loop {
        let next = body.next().await;
        let is_end = !matches!(next, Some(Ok(_)));
        if let Some(Ok(bytes)) = &next {
            let left = upload.length - upload.received - piece.len() as i64;
            if bytes.len() as i64 > left {
                return Err(Error::TooLarge(format!(
                    "the upload has more than its {} bytes",
                    upload.length
                )));
            }
            piece.extend_from_slice(bytes);
        }
        while piece.len() >= PART || (is_end && !piece.is_empty()) {
            let length = piece.len().min(PART);
            let bytes = piece.split_to(length).freeze();
            upload = add_part(database, objects, &upload, bytes).await?;
        }
        if is_end {
            return Ok(upload);
        }
    }
}

async fn add_part(database: &Database, objects: &Objects, upload: &Upload, bytes: Bytes) -> Result<Upload> {
    if upload.parts >= MAX_PARTS {
        return Err(Error::TooLarge(format!(
            "an upload has at most {MAX_PARTS} parts; send more bytes in each request"
        )));
    }
    let size = bytes.len() as i64;
    // Two requests may write the same bytes through two hubs. Only one of them is confirmed, and
    // the object of the other one is garbage.
    let name = format!("{:05}-{}", upload.parts, new_id()?);
    objects.put(&part(&upload.id, &name), bytes).await?;
    database.add_part(upload, (&name, size), LIFETIME).await
}

/// Writes a complete upload to a file.
///
/// # Errors
/// Fails if a part is missing, or the whole has not the announced SHA-256.
pub async fn assemble(database: &Database, objects: &Objects, upload: &Upload, path: &Path) -> Result<()> {
    let mut file = File::create(path).await.map_err(Error::file("create", path))?;
    for name in database.part_names(&upload.id).await? {
        let key = part(&upload.id, &name);
        if objects.append_to(&key, &mut file).await?.is_none() {
            return Err(Error::MissingObject {
                row: format!("upload {}", upload.id),
                key,
            });
        }
    }
    drop(file);
    let (sha256, _) = digest_of(path).await?;
    if sha256 == upload.sha256 {
        return Ok(());
    }
    Err(Error::Invalid(
        "the uploaded bytes do not have the announced SHA-256; send them again".to_owned(),
    ))
}

/// Forgets an upload, and removes all its parts.
///
/// # Errors
/// Fails if the object store or the database fails.
pub async fn remove(database: &Database, objects: &Objects, upload: &Upload) -> Result<()> {
    database.delete_upload(&upload.id).await?;
    // The job must not come back after its parts are gone.
    database.flush().await?;
    remove_parts(objects, &upload.id).await
}

/// Removes the parts of an upload that no row names any more.
///
/// # Errors
/// Fails if the object store fails.
pub async fn remove_parts(objects: &Objects, upload: &str) -> Result<()> {
    let parts: Vec<_> = objects.list(&part(upload, "")).try_collect().await?;
    for listed in parts {
        objects.delete(&listed.key).await?;
    }
    Ok(())
}
