//! The query for a profile: sums of weights by event and stack.

use crate::filter::Column;
use crate::limits::{Coverage, LimitKind};
use crate::query::Query;
use crate::scan::{Accumulate, Fold, GroupKey, Groups, Needs, Scan, SegmentScan, check_memory, scan};
use crate::segment::SegmentEntry;
use crate::segment_reader::SegmentReader;
use crate::stack_index::StackIndex;
use crate::store::Store;
use crate::{Error, Result};
use async_trait::async_trait;
use backtrail_profile::{Id, Label, LabelValue, Profile, Sample, StackId, UnixNanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The columns of an event, by which all profiles are grouped.
const EVENT: [Column; 3] = [Column::Event, Column::Unit, Column::Period];

impl Store {
    /// Returns the profile of all samples of a query: one sample for each event, stack and group.
    /// The texts of the columns in `group_by` are labels of the samples. Frames are not symbolized,
    /// unless their lines came with the profiles.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the query needs more memory than its limit, [`Error::Missing`] or
    /// [`Error::Damaged`] for files that cannot be read, [`Error::Canceled`] after a cancellation.
    pub async fn merge(&self, query: &Query, group_by: &[Column]) -> Result<(Profile, Coverage)> {
        let (segments, pruned) = self.segments(query).await?;
        let needs = Needs {
            weight: true,
            stack: true,
            time: false,
        };
        let mut fold = MergeFold {
            reader: Arc::clone(&self.reader),
            memory: query.limits.memory,
            profile: Profile::default(),
            stacks: StackIndex::default(),
            sums: BTreeMap::new(),
        };
        let columns = Scan {
            filter: query.filter.clone(),
            group_by: EVENT.iter().chain(group_by).cloned().collect(),
            needs,
        };
        let new = |segment: &SegmentScan| StackSums(vec![0; segment.stack_count()]);
        let about = About::new(query, &segments);
        let mut coverage = scan(&self.reader, query, columns, segments, new, &mut fold).await?;
        coverage.segments_pruned = pruned;
        let mut profile = fold.finish(group_by)?;
        about.add(&mut profile, &coverage);
        Ok((profile, coverage))
    }

    /// Returns the profiles of two queries, for a comparison.
    ///
    /// # Errors
    ///
    /// As [`Store::merge`].
    pub async fn diff(
        &self,
        before: &Query,
        after: &Query,
    ) -> Result<((Profile, Coverage), (Profile, Coverage))> {
        futures_util::try_join!(self.merge(before, &[]), self.merge(after, &[]))
    }
}

/// The sums of weights by a segment's stacks.
struct StackSums(Vec<i64>);

impl Accumulate for StackSums {
    fn add(&mut self, _time: i64, weight: i64, stack: u32) -> bool {
        match self.0.get_mut(stack as usize) {
            Some(sum) => {
                *sum = sum.saturating_add(weight);
                true
            }
            None => false,
        }
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        for (sum, weight) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(weight);
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.0.len() as u64 * 8
    }
}

/// The profile of the segments so far.
struct MergeFold {
    reader: Arc<SegmentReader>,
    memory: u64,
    profile: Profile,
    stacks: StackIndex,
    /// The sums of each group by the index of the profile's stack.
    sums: BTreeMap<GroupKey, Vec<i64>>,
}

#[async_trait]
impl Fold<StackSums> for MergeFold {
    async fn fold(&mut self, segment: &SegmentScan, groups: Groups<StackSums>) -> Result<()> {
        let groups: Vec<_> = groups.into_iter().collect();
        let mut needed = vec![false; segment.stack_count()];
        for (_, StackSums(sums)) in &groups {
            for (needed, sum) in needed.iter_mut().zip(sums) {
                *needed |= *sum != 0;
            }
        }
        let stacks = self
            .stacks
            .resolve(&mut self.profile, &self.reader, &segment.entry, Some(&needed));
        let stacks = stacks.await?;
        if stacks.len() != needed.len() {
            return Err(segment.damaged("the number of stacks is not that of the catalog"));
        }
        for (key, StackSums(sums)) in groups {
            let totals = self.sums.entry(key).or_default();
            totals.resize(self.profile.stacks.len(), 0);
            for (stack, sum) in stacks.iter().zip(sums) {
                if sum != 0
                    && let Some(total) = totals.get_mut(stack.index())
                {
                    *total = total.saturating_add(sum);
                }
            }
        }
        let sums = self.sums.values().map(|sums| sums.capacity() as u64 * 8);
        let stacks = self.stacks.len() as u64 * 40 + self.profile.stacks.len() as u64 * 32;
        check_memory(sums.fold(stacks, u64::saturating_add), self.memory)
    }
}

impl MergeFold {
    /// Returns the profile with its samples.
    fn finish(mut self, group_by: &[Column]) -> Result<Profile> {
        let profile = &mut self.profile;
        for (key, sums) in &self.sums {
            let [event, unit, period, groups @ ..] = &**key else {
                continue;
            };
            let period = period
                .parse()
                .map_err(|_| Error::Invalid(format!("`{period}` is not a period")))?;
            let event = profile.event(event, unit, period)?;
            let mut labels = Vec::new();
            for (column, text) in group_by.iter().zip(groups) {
                if !text.is_empty() {
                    let key = profile.string(column.name())?;
                    let value = LabelValue::Text(profile.string(text)?);
                    labels.push(Label { key, value });
                }
            }
            let labels = profile.label_set(labels)?;
            for (index, weight) in sums.iter().enumerate() {
                if *weight != 0 {
                    profile.samples.push(Sample {
                        event,
                        weight: *weight,
                        stack: StackId::from_index(index as u32),
                        time: None,
                        thread: None,
                        cpu: None,
                        labels,
                    });
                }
            }
        }
        Ok(self.profile)
    }
}

/// The time of a query's segments, and their notes.
struct About {
    start: u64,
    end: u64,
    notes: BTreeSet<String>,
}

impl About {
    /// The maximum number of notes of a profile.
    const MAX_NOTES: usize = 32;

    fn new(query: &Query, segments: &[SegmentEntry]) -> Self {
        let (start, end) = (query.filter.time.start.0, query.filter.time.end.0);
        let first = segments.iter().map(|entry| entry.first).min().unwrap_or(start);
        let last = segments.iter().map(|entry| entry.last).max();
        let notes = segments.iter().flat_map(|entry| &entry.notes);
        let mut distinct = BTreeSet::new();
        for note in notes {
            if distinct.len() < Self::MAX_NOTES && !distinct.contains(note) {
                distinct.insert(note.clone());
            }
        }
        Self {
            start: start.max(first),
            end: last.map_or(start, |last| end.min(last.saturating_add(1))),
            notes: distinct,
        }
    }

    fn add(self, profile: &mut Profile, coverage: &Coverage) {
        profile.start = Some(UnixNanos(self.start));
        profile.duration = Some(self.end.saturating_sub(self.start));
        profile.notes.extend(self.notes);
        if let Some(limit) = coverage.truncated {
            let limit = match limit {
                LimitKind::Bytes => "bytes",
                LimitKind::Rows => "samples",
                LimitKind::Deadline => "time",
            };
            profile
                .notes
                .push(format!("the query ended early at its limit of {limit}"));
        }
        if !coverage.missing.is_empty() {
            let count = coverage.missing.len();
            profile
                .notes
                .push(format!("{count} segments with missing files were left out"));
        }
    }
}
