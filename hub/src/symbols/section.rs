//! Sections of stored files, copied by a child process.

use crate::analysis::AnalysisError;
use crate::database::blobs::BuildFile;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blob;
use tempfile::TempDir;
use tokio::fs::File;

/// A copied section. Its file is removed with the folder.
#[derive(Debug)]
pub struct Section {
    /// The content.
    pub file: File,
    /// The size in bytes.
    pub size: u64,
    folder: TempDir,
}

impl Section {
    /// Returns the folder, which must live as long as the file is read.
    #[must_use]
    pub fn into_parts(self) -> (File, TempDir) {
        (self.file, self.folder)
    }
}

/// Copies a section of the first file that has it with content. `None`: none has.
///
/// # Errors
/// Fails if the hub itself fails, or a stored file is damaged.
pub async fn copy(hub: &Hub, files: &[BuildFile], name: &str) -> Result<Option<Section>> {
    // Each child may take much memory.
    let _place = hub.sections.acquire().await.map_err(|_| Error::Ending)?;
    for file in files {
        let folder = hub.work_folder("section-").await?;
        let (source, target) = (folder.path().join("file"), folder.path().join("section"));
        let key = blob(&file.sha256);
        if !hub.objects.copy_to(&key, &source).await? {
            let row = format!("the file of build {}", file.build_id);
            return Err(Error::MissingObject { row, key });
        }
        match hub.supervisor()?.copy_section(&source, name, &target).await {
            Ok(false) => continue,
            Ok(true) => {}
            Err(AnalysisError::System(source)) => {
                return Err(Error::system("run a child process")(source));
            }
            Err(error) => {
                tracing::warn!("no section of build {}: {error}", file.build_id);
                continue;
            }
        }
        let copy = File::open(&target).await.map_err(Error::file("open", &target))?;
        let size = copy.metadata().await.map_err(Error::file("read", &target))?.len();
        return Ok(Some(Section {
            file: copy,
            size,
            folder,
        }));
    }
    Ok(None)
}
