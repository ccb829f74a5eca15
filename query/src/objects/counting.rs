//! A read-only object store that counts the bytes it returns.

use crate::Error;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as ObjectError, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An object store that refuses writes, and reads at most a number of bytes.
#[derive(Debug)]
pub(crate) struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    read: AtomicU64,
    limit: u64,
}

impl CountingStore {
    /// Builds the store. `limit` is the maximum number of bytes to be read.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, limit: u64) -> Self {
        Self {
            inner,
            read: AtomicU64::new(0),
            limit,
        }
    }

    /// Returns the number of bytes that were read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Returns the store without the limit.
    pub(crate) fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    /// Counts a read before it happens.
    fn count(&self, bytes: u64) -> Result<()> {
        let before = self.read.fetch_add(bytes, Ordering::Relaxed);
        match before.saturating_add(bytes) > self.limit {
            false => Ok(()),
            true => Err(ObjectError::Generic {
                store: "profiles",
                source: Box::new(Error::Scanned(self.limit)),
            }),
        }
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the profile store")
    }
}

/// Returns the error of a write.
fn read_only() -> ObjectError {
    ObjectError::NotSupported {
        source: "queries do not write to the profile store".into(),
    }
}

#[async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let result = self.inner.get_opts(location, options).await?;
        if !is_head {
            self.count(result.range.end.saturating_sub(result.range.start))?;
        }
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start));
        self.count(bytes.fold(0, u64::saturating_add))?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::once(async { Err(read_only()) }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only())
    }

    async fn rename_opts(&self, _: &Path, _: &Path, _: RenameOptions) -> Result<()> {
        Err(read_only())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn reads_stop_at_the_limit_and_writes_are_refused() {
        let inner = InMemory::new();
        let key = Path::from("a");
        inner
            .put(&key, PutPayload::from_static(b"0123456789"))
            .await
            .unwrap();
        let store = CountingStore::new(Arc::new(inner), 15);
        assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap().len(), 10);
        assert_eq!(store.get_range(&key, 0..5).await.unwrap().len(), 5);
        assert_eq!(store.bytes_read(), 15);
        let error = store.get_range(&key, 0..1).await.unwrap_err();
        assert!(matches!(Error::of_object(&error), Error::Scanned(15)), "{error}");
        assert!(store.put(&key, PutPayload::from_static(b"x")).await.is_err());
        assert!(store.delete(&key).await.is_err());
        assert!(store.copy(&key, &Path::from("b")).await.is_err());
    }
}
