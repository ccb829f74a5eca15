//! Accepts an uploaded debug file or executable.

use super::upload;
use crate::database::jobs::{self, Job};
use crate::database::transact;
use crate::database::uploads::{self, Upload};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::symbols::store::{self, Expected, Refusal, StoredFile};

/// Checks and stores an uploaded file. Its subject is its build id.
///
/// # Errors
/// Fails if the hub itself fails. A refused file is no error: the sender and the audit log get the
/// reason.
pub async fn accept(hub: &Hub, job: &Job, upload: &Upload) -> Result<()> {
    let folder = hub.work_folder("debug-").await?;
    let path = folder.path().join("file");
    let checked = check(hub, upload, &path).await;
    let sender = upload.token.as_str();
    match checked {
        Ok(file) => {
            let keys = transact!(hub.database, connection => {
                uploads::delete(connection, &upload.id).await?;
                jobs::finish(connection, job).await?;
                store::record(connection, &file).await
            })?;
            tracing::info!("stored a file of build {} for {keys} stack keys", file.build_id);
            hub.database
                .log_action(sender, "upload debug file", &file.build_id)
                .await?;
            hub.wake.notify_one();
        }
        Err(Refusal::File(reason)) => {
            tracing::info!("refused a file of build {}: {reason}", upload.subject);
            let subject = format!("{}: {reason}", upload.subject);
            hub.database
                .log_action(sender, "refused debug file", &subject)
                .await?;
            hub.database.note_refusal(&upload.id, sender, &reason).await?;
            transact!(hub.database, connection => {
                uploads::delete(connection, &upload.id).await?;
                jobs::finish(connection, job).await
            })?;
        }
        Err(Refusal::Hub(error)) => return Err(error),
    }
    upload::remove(&hub.database, &hub.objects, upload).await
}

async fn check(
    hub: &Hub,
    upload: &Upload,
    path: &std::path::Path,
) -> std::result::Result<StoredFile, Refusal> {
    match upload::assemble(&hub.database, &hub.objects, upload, path).await {
        Ok(()) => {}
        Err(Error::MissingObject { row, key }) => {
            return Err(Refusal::Hub(Error::MissingObject { row, key }));
        }
        Err(other) => return Err(other.into()),
    }
    let name = format!("{}.debug", upload.subject);
    store::put(hub, path, &name, "upload", Expected::BuildId(&upload.subject)).await
}
