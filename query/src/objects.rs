//! The object store of the profiles: opening it, and reading it within a limit.

mod counting;
mod registry;

pub(crate) use counting::CountingStore;
pub(crate) use registry::OnlyStore;

use crate::{Error, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreScheme};
use std::sync::Arc;
use url::Url;

/// The URL by which plans name the store. The folder or bucket is not a part of plans.
const URL: &str = "profiles://store";

/// Returns the URL by which plans name the store.
pub(crate) fn plan_url() -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse(URL).map_err(|error| Error::Failed(error.to_string()))
}

/// Opens a folder, or a bucket by its URL `s3://BUCKET/PREFIX`. Keys and endpoint of a bucket are
/// in the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`.
pub(crate) fn open(place: &str) -> Result<Arc<dyn ObjectStore>> {
    let failed = |error: object_store::Error| Error::Objects(format!("{place}: {error}"));
    if !place.contains("://") {
        let store = LocalFileSystem::new_with_prefix(place).map_err(failed)?;
        return Ok(Arc::new(store));
    }
    let url = Url::parse(place).map_err(|error| Error::Objects(format!("{place}: {error}")))?;
    let (scheme, prefix) =
        ObjectStoreScheme::parse(&url).map_err(|error| Error::Objects(error.to_string()))?;
    if !matches!(scheme, ObjectStoreScheme::AmazonS3) {
        return Err(Error::Objects(format!(
            "{place} is neither a folder nor an s3:// URL"
        )));
    }
    let bucket = AmazonS3Builder::from_env()
        .with_url(place)
        .build()
        .map_err(failed)?;
    Ok(Arc::new(PrefixStore::new(bucket, prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_no_store_are_refused() {
        for place in ["/no/such/folder", "http://example.com/x", "s3://"] {
            let error = open(place).unwrap_err();
            assert!(matches!(error, Error::Objects(_)), "{place}: {error}");
        }
    }
}
