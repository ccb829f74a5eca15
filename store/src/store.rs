//! The store: segments of a catalog, and the reader of their files.

use crate::Result;
use crate::catalog::{Catalog, Listing};
use crate::hour::Hour;
use crate::lru::CacheStats;
use crate::query::Query;
use crate::segment::SegmentEntry;
use crate::segment_reader::SegmentReader;
use object_store::ObjectStore;
use std::cmp::Reverse;
use std::sync::Arc;

/// The sizes of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The bytes of all caches.
    pub cache: usize,
    /// The bytes of memory that reading one table of a segment may need.
    pub table_memory: u64,
}

/// 256 MiB of caches, 1 GiB for a table.
impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            cache: 256 << 20,
            table_memory: 1 << 30,
        }
    }
}

/// The store. Its methods are queries. They need a tokio runtime with time.
pub struct Store {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) reader: Arc<SegmentReader>,
}

impl Store {
    /// Builds a store over the files and the catalog that writers use.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, catalog: Arc<dyn Catalog>, options: StoreOptions) -> Self {
        let reader = SegmentReader::new(objects, options.cache, options.table_memory);
        Self {
            catalog,
            reader: Arc::new(reader),
        }
    }

    /// Returns uses and size of each cache, by name.
    #[must_use]
    pub fn cache_stats(&self) -> [(&'static str, CacheStats); 4] {
        self.reader.stats()
    }

    /// Returns the segments that may have samples of a query, the newest first, and the number of
    /// others that were listed.
    pub(crate) async fn segments(&self, query: &Query) -> Result<(Vec<SegmentEntry>, u64)> {
        let listing = Listing {
            hours: Hour::range(&query.filter.time),
            services: query.filter.services(),
        };
        let mut listed = self.catalog.list(&listing).await?;
        let all = listed.len();
        listed.retain(|entry| query.filter.may_match(entry));
        listed.sort_by_key(|entry| (Reverse(entry.hour), Reverse(entry.last), entry.id));
        let pruned = all - listed.len();
        Ok((listed, pruned as u64))
    }
}
