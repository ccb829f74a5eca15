//! Directories of debug files by build id, as analyses read them.

use super::debug_id::is_build_id;
use crate::clock;
use crate::database::blobs::{BuildFile, FileKind};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blob;
use std::collections::BTreeMap;
use std::path::Path;

/// The files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supplied {
    /// The time at which the directory was begun.
    pub time: i64,
    /// The SHA-256 by build id.
    files: BTreeMap<String, String>,
}

impl Supplied {
    /// Returns whether the directory has this very file.
    #[must_use]
    pub fn has(&self, file: &BuildFile) -> bool {
        self.files.get(&file.build_id) == Some(&file.sha256)
    }
}

/// Makes a directory with the debug files that the hub has of these builds, as
/// `.build-id/xx/yyyy.debug`, and with packages of split DWARF, as `.build-id/xx/yyyy.dwp`.
///
/// # Errors
/// Fails if the database or the object store fails, or a file cannot be written.
pub async fn make(hub: &Hub, directory: &Path, build_ids: &[String]) -> Result<Supplied> {
    let mut supplied = Supplied {
        time: clock::now(),
        files: BTreeMap::new(),
    };
    tokio::fs::create_dir_all(directory)
        .await
        .map_err(Error::file("create", directory))?;
    for build_id in build_ids.iter().filter(|id| is_build_id(id)) {
        // A package of split DWARF completes a debug file, and alone says nothing.
        if let Some(file) = place(hub, directory, build_id, &FileKind::Debuginfo, "debug").await? {
            supplied.files.insert(build_id.clone(), file.sha256);
        }
        let _ = place(hub, directory, build_id, &FileKind::SplitDwarf, "dwp").await?;
    }
    Ok(supplied)
}

/// Copies a file of a build into a directory. `None`: the hub has none.
async fn place(
    hub: &Hub,
    directory: &Path,
    build_id: &str,
    kind: &FileKind,
    extension: &str,
) -> Result<Option<BuildFile>> {
    let Some(file) = hub.database.build_file(build_id, kind).await? else {
        return Ok(None);
    };
    let (first, rest) = build_id.split_at(2);
    let folder = directory.join(".build-id").join(first);
    tokio::fs::create_dir_all(&folder)
        .await
        .map_err(Error::file("create", &folder))?;
    let key = blob(&file.sha256);
    let path = folder.join(format!("{rest}.{extension}"));
    if !hub.objects.copy_to(&key, &path).await? {
        // Less symbols are better than no analysis.
        tracing::error!("the {extension} file of build {build_id} names {key}, which is missing");
        return Ok(None);
    }
    Ok(Some(file))
}
