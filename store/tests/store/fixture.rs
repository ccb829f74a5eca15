//! A store in memory or in a directory, with its catalog and writers.

use crate::model::{HOUR, Plain, profile_of};
use backtrail_profile::UnixNanos;
use backtrail_store::{
    Filter, Hour, MemoryCatalog, Query, SegmentEntry, Store, StoreOptions, Writer, WriterLimits,
};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

/// Files and catalog of a store.
#[derive(Clone)]
pub struct Fixture {
    pub objects: Arc<dyn ObjectStore>,
    pub catalog: Arc<MemoryCatalog>,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::over(Arc::new(InMemory::new()))
    }
}

impl Fixture {
    /// Returns an empty catalog over an object store.
    pub fn over(objects: Arc<dyn ObjectStore>) -> Self {
        Self {
            objects,
            catalog: Arc::default(),
        }
    }

    /// Returns a writer.
    pub fn writer(&self) -> Writer {
        let limits = WriterLimits::default();
        Writer::new(self.objects.clone(), self.catalog.clone(), limits)
    }

    /// Returns a store with empty caches.
    pub fn store(&self) -> Store {
        Store::new(
            self.objects.clone(),
            self.catalog.clone(),
            StoreOptions::default(),
        )
    }

    /// Writes samples as one commit, each in a profile of its own origin.
    pub async fn write(&self, samples: &[Plain]) -> Vec<SegmentEntry> {
        let mut writer = self.writer();
        add(&mut writer, samples);
        writer.flush().await.unwrap()
    }
}

/// Adds samples to a writer, one profile for each run of the same origin.
pub fn add(writer: &mut Writer, samples: &[Plain]) {
    for run in samples.chunk_by(|a, b| a.origin() == b.origin()) {
        let origin = run[0].origin();
        writer.add(&origin, &[], &profile_of(run), UnixNanos(0)).unwrap();
    }
}

/// Returns a query of all samples.
pub fn all() -> Query {
    Query::new(Filter::of_time(HOUR.start()..Hour(HOUR.0 + 2).end()))
}

/// Runs a future to its end on several threads.
pub fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async { tokio::spawn(future).await.unwrap() })
}
