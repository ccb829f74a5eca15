//! A catalog that runs other work in the middle of an operation.

use async_trait::async_trait;
use backtrail_profile::UnixNanos;
use backtrail_store::{Catalog, Hour, Listing, MemoryCatalog, Result, SegmentEntry, SegmentId, SegmentState};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// Work that runs once.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A catalog over another one, with work before its next replacement and after its next list.
#[derive(Default)]
pub struct HookedCatalog {
    pub inner: Arc<MemoryCatalog>,
    pub before_replacement: Mutex<Option<Work>>,
    pub after_list: Mutex<Option<Work>>,
}

async fn run(work: &Mutex<Option<Work>>) {
    let work = work.lock().unwrap().take();
    if let Some(work) = work {
        work.await;
    }
}

#[async_trait]
impl Catalog for HookedCatalog {
    async fn commit(&self, add: &[SegmentEntry], remove: &[SegmentId], at: UnixNanos) -> Result<()> {
        if !remove.is_empty() {
            run(&self.before_replacement).await;
        }
        self.inner.commit(add, remove, at).await
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<SegmentEntry>> {
        let listed = self.inner.list(listing).await;
        run(&self.after_list).await;
        listed
    }

    async fn states(&self, ids: &[SegmentId]) -> Result<Vec<Option<SegmentState>>> {
        self.inner.states(ids).await
    }

    async fn removed(&self, before: UnixNanos, limit: usize) -> Result<Vec<(Hour, SegmentId)>> {
        self.inner.removed(before, limit).await
    }

    async fn forget(&self, ids: &[SegmentId]) -> Result<()> {
        self.inner.forget(ids).await
    }
}
