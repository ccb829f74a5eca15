//! The upload of a new segment's files while they are written.

use crate::Result;
use crate::hour::Hour;
use crate::segment::{SegmentId, TableKind};
use crate::segment_writer::Sink;
use crate::upload::Upload;
use object_store::ObjectStore;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The files of a segment on their way to the object store.
pub(super) struct UploadSink {
    runtime: Handle,
    uploads: [Upload; 4],
}

impl UploadSink {
    /// Begins the files of a segment. Its methods wait for the runtime, so that they belong on a
    /// thread for blocking work.
    pub(super) fn new(runtime: Handle, objects: Arc<dyn ObjectStore>, hour: Hour, id: SegmentId) -> Self {
        let upload = |kind: TableKind| Upload::new(Arc::clone(&objects), kind.key(hour, id));
        Self {
            runtime,
            uploads: TableKind::ALL.map(upload),
        }
    }

    /// Completes the files.
    pub(super) fn finish(self) -> Result<()> {
        self.runtime.block_on(async {
            for upload in self.uploads {
                upload.finish().await?;
            }
            Ok(())
        })
    }

    /// Drops the files.
    pub(super) fn abort(self) {
        self.runtime.block_on(async {
            for upload in self.uploads {
                upload.abort().await;
            }
        });
    }
}

impl Sink for UploadSink {
    fn send(&mut self, kind: TableKind, bytes: Vec<u8>) -> Result<()> {
        match self.uploads.get_mut(kind as usize) {
            Some(upload) => self.runtime.block_on(upload.write(bytes)),
            None => Ok(()),
        }
    }
}
