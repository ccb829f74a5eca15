//! Finding the damaged or missing file among those that a query read.

use crate::Error;
use crate::error::sentence;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;

/// The maximum size of a file that is decoded.
const MAX_BYTES: u64 = 1 << 30;

/// Returns the error of the first damaged or missing file. `problem` is what the engine reported.
pub(crate) async fn find(store: &Arc<dyn ObjectStore>, keys: &[String], problem: String) -> Error {
    for key in keys {
        if let Some(error) = error_of(store, key).await {
            return error;
        }
    }
    Error::Failed(format!("a file of the store cannot be decoded: {problem}"))
}

/// Returns the reason why a file cannot be decoded. `None`: it can be, or is too large.
async fn error_of(store: &Arc<dyn ObjectStore>, key: &str) -> Option<Error> {
    let found = match store.get(&Path::from(key)).await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => return Some(Error::Missing(key.into())),
        Err(_) => return None,
    };
    if found.meta.size > MAX_BYTES {
        return None;
    }
    let damaged = |problem: String| Error::Damaged {
        key: key.into(),
        problem: sentence(&problem),
    };
    let bytes = found.bytes().await.ok()?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes);
    match builder.and_then(ParquetRecordBatchReaderBuilder::build) {
        Ok(mut batches) => batches
            .find_map(Result::err)
            .map(|error| damaged(error.to_string())),
        Err(error) => Some(damaged(error.to_string())),
    }
}
