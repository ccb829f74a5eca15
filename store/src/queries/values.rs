//! The queries that complete a filter: values of a column, and keys of labels.

use crate::filter::Column;
use crate::limits::Coverage;
use crate::query::Query;
use crate::scan::{Accumulate, Fold, Groups, Needs, Scan, SegmentScan, scan};
use crate::store::Store;
use crate::{Error, Result};
use futures_util::future::BoxFuture;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnValue {
    /// The value.
    pub text: String,
    /// The number of samples with it.
    pub samples: u64,
}

impl Store {
    /// Returns the values of a column that begin with a prefix, those with the most samples first.
    ///
    /// # Errors
    ///
    /// As [`Store::merge`].
    pub async fn values(
        &self,
        query: &Query,
        column: &Column,
        prefix: &str,
        limit: usize,
    ) -> Result<(Vec<ColumnValue>, Coverage)> {
        let (segments, pruned) = self.segments(query).await?;
        let columns = Scan {
            filter: query.filter.clone(),
            group_by: vec![column.clone()],
            needs: Needs::default(),
        };
        let mut fold = ValuesFold {
            prefix: prefix.into(),
            counts: Groups::new(query.limits.memory),
        };
        let new = |_: &SegmentScan| Count(0);
        let mut coverage = scan(&self.reader, query, columns, segments, new, &mut fold).await?;
        coverage.segments_pruned = pruned;
        let values = fold.counts.into_iter().map(|(key, Count(samples))| ColumnValue {
            text: key.first().map_or_else(String::new, |text| text.to_string()),
            samples,
        });
        let mut values: Vec<_> = values.collect();
        values.sort_by_cached_key(|value| (Reverse(value.samples), value.text.clone()));
        values.truncate(limit);
        Ok((values, coverage))
    }

    /// Returns the keys of labels in the segments of a query, in order. Conditions on columns are
    /// not checked for each sample.
    ///
    /// # Errors
    ///
    /// As [`Store::merge`].
    pub async fn label_keys(&self, query: &Query) -> Result<Vec<String>> {
        let (segments, _) = self.segments(query).await?;
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for entry in segments {
            if query.cancel.is_canceled() {
                return Err(Error::Canceled);
            }
            for (key, _) in self.reader.contexts(&entry).await?.iter().flatten() {
                if !keys.contains(&**key) {
                    keys.insert(key.to_string());
                }
            }
        }
        Ok(keys.into_iter().collect())
    }
}

/// The number of samples.
struct Count(u64);

impl Accumulate for Count {
    fn add(&mut self, _time: i64, _weight: i64, _stack: u32) -> bool {
        self.0 += 1;
        true
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        self.0 += other.0;
        Ok(())
    }

    fn memory(&self) -> u64 {
        8
    }
}

/// The values of the segments so far.
struct ValuesFold {
    prefix: Box<str>,
    counts: Groups<Count>,
}

impl Fold<Count> for ValuesFold {
    type Loaded = ();

    fn load(&self, _: &SegmentScan, _: &Groups<Count>) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn fold(&mut self, _segment: &SegmentScan, groups: Groups<Count>, (): ()) -> Result<()> {
        for (key, count) in groups.into_iter() {
            let text = key.first().map_or("", |text| text);
            if !text.is_empty() && text.starts_with(&*self.prefix) {
                self.counts.insert(key, count)?;
            }
        }
        Ok(())
    }
}
