//! The engine's session: its limits, and the only object store that plans can reach.

use crate::objects::{self, CountingStore, OnlyStore};
use crate::request::Limits;
use crate::{Error, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use std::path::Path;
use std::sync::Arc;

/// The part of the memory limit that the engine books for rows. It does not book the rest, such as
/// columns that are being decoded.
const BOOKED: f64 = 0.4;
/// The memory limit per row of a batch. Batches of wide rows must be small parts of the memory.
const BATCH_SHARE: usize = 128 << 10;
/// The limits of rows of a batch.
const MIN_ROWS: usize = 256;
/// See [`MIN_ROWS`].
const MAX_ROWS: usize = 8192;
/// The maximum memory that is reserved for merging spilled rows.
const MERGE_BYTES: usize = 10 << 20;
/// The maximum size of spilled rows, by the memory limit.
const SPILL_FACTOR: u64 = 64;
/// The memory for the footers of files.
const FOOTERS: usize = 16 << 20;

/// Returns the memory that the engine books for rows.
fn booked(limits: &Limits) -> usize {
    (limits.memory() as f64 * BOOKED) as usize
}

/// Builds the environment of plans.
pub(crate) fn runtime(store: Arc<CountingStore>, limits: &Limits, spill: &Path) -> Result<Arc<RuntimeEnv>> {
    let booked = booked(limits);
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill.to_owned()]))
        .with_max_temp_directory_size(limits.memory_bytes.saturating_mul(SPILL_FACTOR));
    let url = objects::plan_url()?;
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(booked)))
        .with_disk_manager_builder(disk)
        .with_object_store_registry(Arc::new(OnlyStore::new(
            AsRef::<url::Url>::as_ref(&url).clone(),
            store,
        )))
        .with_metadata_cache_limit(FOOTERS.min(booked / 4))
        .build_arc()
        .map_err(|error| Error::of_engine(&error, limits.memory_bytes))
}

/// Returns the settings of sessions.
pub(crate) fn config(limits: &Limits) -> SessionConfig {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_batch_size((limits.memory() / BATCH_SHARE).clamp(MIN_ROWS, MAX_ROWS))
        .with_default_catalog_and_schema("store", "profiles")
        .with_information_schema(true);
    let options = config.options_mut();
    options.execution.parquet.pushdown_filters = true;
    options.execution.parquet.reorder_filters = true;
    // The reservation for merging spilled rows must fit into small limits.
    options.execution.sort_spill_reservation_bytes = (booked(limits) / 32).min(MERGE_BYTES);
    config
}
