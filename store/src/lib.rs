//! The profile store: a fleet's samples as Parquet files on an object store, and fixed queries.
//!
//! A [`Writer`] collects profiles and writes them as segments: one file of samples, stacks, frames
//! and contexts each. A [`Catalog`] names the segments that belong to the store. A [`Store`]
//! answers queries. `docs/profile-store.md` describes the files for other readers.
//!
//! ```
//! use backtrail_profile::{UnixNanos, format::folded};
//! use backtrail_store::{Filter, MemoryCatalog, Origin, Query, Store, Writer};
//! use object_store::memory::InMemory;
//! use std::sync::Arc;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let objects = Arc::new(InMemory::new());
//! let catalog = Arc::new(MemoryCatalog::default());
//! let profile = folded::read("main;parse 30\nmain;write 12\n".as_bytes())?;
//! let origin = Origin {
//!     service: "web".into(),
//!     ..Origin::default()
//! };
//! let mut writer = Writer::new(objects.clone(), catalog.clone(), Default::default());
//! writer.write(&origin, &profile, UnixNanos(5)).await?;
//! writer.flush().await?;
//!
//! let store = Store::new(objects, catalog, Default::default());
//! let query = Query::new(Filter::of_time(UnixNanos(0)..UnixNanos(10)));
//! let (merged, coverage) = store.merge(&query, &[]).await?;
//! assert_eq!(merged.samples.len(), 2);
//! assert!(coverage.is_complete());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod blocking;
mod buffer;
mod build_id_filter;
mod catalog;
mod checksums;
mod clock;
mod columns;
mod compaction;
mod content;
mod encode;
mod error;
mod file;
mod filter;
mod footer_entry;
mod frame_line;
mod frame_set;
mod garbage;
mod hour;
mod idle_counts;
mod limits;
mod lru;
mod memory_catalog;
mod origin;
mod origin_notes;
mod push_hashes;
mod queries;
mod query;
mod recovery;
pub mod regression;
mod retention;
mod row_parts;
mod scan;
mod schema;
mod segment;
mod segment_reader;
mod segment_writer;
mod sparse_file;
mod stack_index;
mod store;
mod table_writer;
mod tables;
mod upload;
mod writer;

pub use build_id_filter::BuildIdFilter;
pub use catalog::{Catalog, Listing, SegmentState};
pub use compaction::{Compacted, CompactionOptions};
pub use error::{Error, Result};
pub use filter::{Column, Condition, Filter, Matcher};
pub use frame_set::{FrameSet, StackFilter};
pub use garbage::Garbage;
pub use hour::Hour;
pub use idle_counts::IdleCounts;
pub use limits::{Cancel, Coverage, LimitKind, Limits};
pub use lru::CacheStats;
pub use memory_catalog::MemoryCatalog;
pub use origin::{Origin, Origins};
pub use origin_notes::OriginNotes;
pub use push_hashes::{PushHash, PushHashes};
pub use queries::{
    Bucket, ColumnValue, Distribution, HeatMap, Series, SeriesGroup, Top, TopRow, UnnamedCode,
};
pub use query::Query;
pub use recovery::Recovered;
pub use retention::{DEFAULT_DAYS, first_kept};
pub use segment::{FileSummary, SegmentEntry, SegmentId, TableKind};
pub use store::{Store, StoreOptions};
pub use writer::{Writer, WriterLimits};
