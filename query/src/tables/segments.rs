//! The tables that segments have files of.

use super::prune::SegmentStatistics;
use super::schema::{file_columns, partition_columns, partition_values};
use crate::objects;
use async_trait::async_trait;
use backtrail_store::{SegmentEntry, SegmentId, TableKind};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::memory::DataSourceExec;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The files that plans read, with the rows of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanLog(Arc<Mutex<BTreeMap<String, ScannedFile>>>);

/// A file that a plan reads.
#[derive(Clone, Debug)]
struct ScannedFile {
    segment: SegmentId,
    rows: u64,
}

impl ScanLog {
    fn add(&self, segment: &SegmentEntry, kind: TableKind) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = ScannedFile {
            segment: segment.id,
            rows: segment.file(kind).rows,
        };
        files.insert(segment.key(kind), file);
    }

    /// Returns the keys of all files that were read.
    pub(crate) fn keys(&self) -> Vec<String> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.keys().cloned().collect()
    }

    /// Returns the number of segments with a file that was read.
    pub(crate) fn segments(&self) -> u64 {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let segments: std::collections::BTreeSet<_> = files.values().map(|file| &file.segment).collect();
        segments.len() as u64
    }

    /// Returns the rows of all files that were read.
    pub(crate) fn rows(&self) -> u64 {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files
            .values()
            .fold(0, |sum: u64, file| sum.saturating_add(file.rows))
    }
}

/// A table with a file per segment.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    kind: TableKind,
    segments: Arc<[SegmentEntry]>,
    schema: TableSchema,
    log: ScanLog,
}

impl SegmentTable {
    /// Builds the table.
    pub(crate) fn new(kind: TableKind, segments: Arc<[SegmentEntry]>, log: ScanLog) -> Self {
        Self {
            kind,
            segments,
            schema: TableSchema::builder(file_columns(kind))
                .with_table_partition_cols(partition_columns())
                .build(),
            log,
        }
    }

    /// Returns the segments that may have rows which pass the filters.
    fn candidates(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<&SegmentEntry>> {
        let with_rows = |segment: &&SegmentEntry| segment.file(self.kind).rows > 0;
        let all = || self.segments.iter().filter(with_rows).collect::<Vec<_>>();
        // Times and names in the catalog are those of samples.
        let usable: Vec<Expr> = filters
            .iter()
            .filter(|filter| {
                let mut columns = filter.column_refs().into_iter();
                self.kind == TableKind::Samples
                    || columns.all(|column| ["segment", "date", "hour"].contains(&column.name.as_str()))
            })
            .cloned()
            .collect();
        let Some(filter) = conjunction(usable) else {
            return Ok(all());
        };
        let schema = DFSchema::try_from(Arc::clone(self.schema.table_schema()))?;
        let filter = state.create_physical_expr(filter, &schema)?;
        let Ok(predicate) = PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(self.schema.table_schema()))
            .try_build(filter)
        else {
            // The filter is still evaluated for each row.
            return Ok(all());
        };
        let keeps = predicate.prune(&SegmentStatistics(&self.segments))?;
        let kept = self.segments.iter().zip(keeps).filter(|(_, keep)| *keep);
        Ok(kept.map(|(segment, _)| segment).filter(with_rows).collect())
    }

    fn file(&self, segment: &SegmentEntry) -> PartitionedFile {
        let bytes = segment.file(self.kind).bytes;
        PartitionedFile::new(segment.key(self.kind), bytes)
            .with_partition_values(partition_values(segment.hour))
    }
}

/// Distributes files to groups so that groups have about the same number of bytes.
fn groups(files: Vec<PartitionedFile>, count: usize) -> Vec<FileGroup> {
    let mut files = files;
    files.sort_by_key(|file| std::cmp::Reverse(file.object_meta.size));
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> = Vec::new();
    groups.resize_with(count.min(files.len()).max(1), Default::default);
    for file in files {
        if let Some((bytes, group)) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes = bytes.saturating_add(file.object_meta.size);
            group.push(file);
        }
    }
    groups
        .into_iter()
        .map(|(_, files)| FileGroup::new(files))
        .collect()
}

#[async_trait]
impl TableProvider for SegmentTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let segments = self.candidates(state, filters)?;
        if segments.is_empty() {
            let schema = datafusion::common::project_schema(&self.schema(), projection)?;
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let rows = segments.iter().map(|segment| segment.file(self.kind).rows);
        let rows = usize::try_from(rows.fold(0, u64::saturating_add)).unwrap_or(usize::MAX);
        segments
            .iter()
            .for_each(|segment| self.log.add(segment, self.kind));
        let files = segments.into_iter().map(|segment| self.file(segment)).collect();
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let source = ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        let mut statistics = Statistics::new_unknown(self.schema.table_schema());
        statistics.num_rows = Precision::Inexact(rows);
        let config = FileScanConfigBuilder::new(objects::plan_url()?, Arc::new(source))
            .with_file_groups(groups(files, state.config().target_partitions()))
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit.filter(|_| filters.is_empty()))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}
