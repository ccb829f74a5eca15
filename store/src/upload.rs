//! Upload of a file of unknown length: small ones at once, large ones in parts.

use crate::{Error, Result};
use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use std::sync::Arc;

/// The size of a part, and the largest file that is sent at once.
const PART: usize = 8 << 20;
/// Parts of one file that are on their way at once.
const PARTS_IN_FLIGHT: usize = 2;

/// A file on its way to the object store. It is visible only after [`Upload::finish`].
pub(crate) struct Upload {
    objects: Arc<dyn ObjectStore>,
    key: String,
    pending: Vec<u8>,
    parts: Option<WriteMultipart>,
}

impl Upload {
    /// Begins a file.
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, key: String) -> Self {
        Self {
            objects,
            key,
            pending: Vec::new(),
            parts: None,
        }
    }

    /// Adds bytes to the end of the file.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) -> Result<()> {
        match self.pending.is_empty() {
            true => self.pending = bytes,
            false => self.pending.extend_from_slice(&bytes),
        }
        if self.pending.len() < PART {
            return Ok(());
        }
        let failed = |error| Error::object(&self.key, error);
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => {
                let place = Key::from(&*self.key);
                let upload = self.objects.put_multipart(&place).await.map_err(failed)?;
                self.parts
                    .insert(WriteMultipart::new_with_chunk_size(upload, PART))
            }
        };
        parts.wait_for_capacity(PARTS_IN_FLIGHT).await.map_err(failed)?;
        parts.put(Bytes::from(std::mem::take(&mut self.pending)));
        Ok(())
    }

    /// Completes the file.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let failed = |error| Error::object(&self.key, error);
        let rest = Bytes::from(std::mem::take(&mut self.pending));
        match self.parts.take() {
            Some(mut parts) => {
                parts.put(rest);
                parts.finish().await.map_err(failed)?;
            }
            None => {
                let place = Key::from(&*self.key);
                let payload = PutPayload::from_bytes(rest);
                self.objects.put(&place, payload).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Drops the file. The store removes the parts that it has.
    pub(crate) async fn abort(mut self) {
        if let Some(parts) = self.parts.take() {
            // Parts without an object cost as much as one. The store's own rules remove the rest.
            let _ = parts.abort().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;
    use object_store::local::LocalFileSystem;

    /// Returns the pieces of a file of more than two parts.
    fn pieces() -> Vec<Vec<u8>> {
        (0..20u8).map(|piece| vec![piece; 1 << 20]).collect()
    }

    #[tokio::test]
    async fn large_file_has_its_pieces_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
        let mut upload = Upload::new(objects, "a/b".into());
        for piece in pieces() {
            upload.write(piece).await.unwrap();
        }
        assert!(!folder.path().join("a/b").exists());
        upload.finish().await.unwrap();
        let content = std::fs::read(folder.path().join("a/b")).unwrap();
        assert!(content == pieces().concat());
    }

    #[tokio::test]
    async fn dropped_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
        let mut upload = Upload::new(objects.clone(), "a/b".into());
        for piece in pieces() {
            upload.write(piece).await.unwrap();
        }
        upload.abort().await;
        let files: Vec<_> = objects.list(None).try_collect().await.unwrap();
        assert_eq!(files, []);
    }
}
