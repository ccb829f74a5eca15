//! The query for a profile: sums of weights by event and stack.

use crate::filter::Column;
use crate::limits::{Coverage, LimitKind};
use crate::query::Query;
use crate::scan::{Accumulate, Fold, GroupKey, Groups, Needs, Scan, SegmentScan, check_memory, scan};
use crate::segment::SegmentEntry;
use crate::segment_reader::SegmentReader;
use crate::stack_index::{SegmentStacks, StackIndex};
use crate::store::Store;
use crate::{Error, Result};
use backtrail_profile::{Id, Label, LabelValue, Profile, Sample, StackId, UnixNanos};
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The columns of an event and its period. Sums are those of each event, over all periods.
const EVENT: [Column; 3] = [Column::Event, Column::Unit, Column::Period];

impl Store {
    /// Returns the profile of all samples of a query: one sample for each event, stack and group.
    /// An event has a period only if all its samples have that one.
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
            periods: BTreeMap::new(),
        };
        let columns = Scan {
            filter: query.filter.clone(),
            group_by: EVENT.iter().chain(group_by).cloned().collect(),
            needs,
        };
        let new = |segment: &SegmentScan| StackSums::new(segment.stack_count());
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

/// The stacks of a page of sums.
const PAGE: usize = 1 << 12;

/// The sums of weights by a segment's stacks. A row group has few of them, which are neighbors, so
/// that pages exist from their first sum on.
struct StackSums {
    stacks: usize,
    pages: Vec<Option<Box<[i64]>>>,
}

impl StackSums {
    fn new(stacks: usize) -> Self {
        Self {
            stacks,
            pages: vec![None; stacks.div_ceil(PAGE)],
        }
    }

    /// Returns the sums that are not 0, with the index of the stack.
    fn iter(&self) -> impl Iterator<Item = (usize, i64)> {
        let pages = self.pages.iter().enumerate();
        pages
            .filter_map(|(page, sums)| Some((page, sums.as_ref()?)))
            .flat_map(|(page, sums)| {
                let sums = sums.iter().enumerate().filter(|(_, sum)| **sum != 0);
                sums.map(move |(place, sum)| (page * PAGE + place, *sum))
            })
    }
}

impl Accumulate for StackSums {
    fn add(&mut self, _time: i64, weight: i64, stack: u32) -> bool {
        let stack = stack as usize;
        let Some(page) = self.pages.get_mut(stack / PAGE) else {
            return false;
        };
        let page = page.get_or_insert_with(|| vec![0; PAGE].into());
        if let Some(sum) = page.get_mut(stack % PAGE) {
            *sum = sum.saturating_add(weight);
        }
        stack < self.stacks
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        for (page, more) in self.pages.iter_mut().zip(other.pages) {
            match (page, more) {
                (Some(page), Some(more)) => {
                    for (sum, weight) in page.iter_mut().zip(more) {
                        *sum = sum.saturating_add(weight);
                    }
                }
                (page @ None, more) => *page = more,
                (Some(_), None) => {}
            }
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        let pages = self.pages.iter().flatten().count();
        (pages * PAGE * 8 + self.pages.len() * 16) as u64
    }
}

/// The profile of the segments so far.
struct MergeFold {
    reader: Arc<SegmentReader>,
    memory: u64,
    profile: Profile,
    stacks: StackIndex,
    /// The sums of each group by the index of the profile's stack. A key has no period.
    sums: BTreeMap<GroupKey, Vec<i64>>,
    /// The period of each event. 0: the samples have several periods.
    periods: BTreeMap<[Box<str>; 2], u64>,
}

impl Fold<StackSums> for MergeFold {
    type Loaded = (Vec<bool>, SegmentStacks);

    fn load(
        &self,
        segment: &SegmentScan,
        groups: &Groups<StackSums>,
    ) -> BoxFuture<'static, Result<Self::Loaded>> {
        let mut needed = vec![false; segment.stack_count()];
        for (stack, _) in groups.iter().flat_map(|(_, sums)| sums.iter()) {
            if let Some(needed) = needed.get_mut(stack) {
                *needed = true;
            }
        }
        let (reader, entry) = (Arc::clone(&self.reader), segment.entry.clone());
        Box::pin(async move {
            let stacks = SegmentStacks::read(&reader, &entry, Some(&needed)).await?;
            Ok((needed, stacks))
        })
    }

    fn fold(
        &mut self,
        segment: &SegmentScan,
        groups: Groups<StackSums>,
        (needed, read): Self::Loaded,
    ) -> Result<()> {
        let profile = &mut self.profile;
        let stacks = self
            .stacks
            .resolve(profile, &segment.entry, &read, Some(&needed))?;
        if stacks.len() != needed.len() {
            return Err(segment.damaged("the number of stacks is not that of the catalog"));
        }
        for (key, sums) in groups.into_iter() {
            let key = self.without_period(key)?;
            let totals = self.sums.entry(key).or_default();
            totals.resize(self.profile.stacks.len(), 0);
            for (index, sum) in sums.iter() {
                if let Some(stack) = stacks.get(index)
                    && let Some(total) = totals.get_mut(stack.index())
                {
                    *total = total.saturating_add(sum);
                }
            }
        }
        let sums = self.sums.values().map(|sums| sums.capacity() as u64 * 8);
        let stacks = self.profile.stacks.len() as u64 * 32;
        check_memory(sums.fold(stacks, u64::saturating_add), self.memory)
    }
}

impl MergeFold {
    /// Returns the key of a group without the period, which is kept as that of the event.
    fn without_period(&mut self, key: GroupKey) -> Result<GroupKey> {
        let mut key = key.into_vec();
        let [event, unit, period, ..] = &*key else {
            return Ok(key.into());
        };
        let number: u64 = period
            .parse()
            .map_err(|_| Error::Invalid(format!("`{period}` is not a period")))?;
        let event = [event.clone(), unit.clone()];
        let known = self.periods.entry(event).or_insert(number);
        if *known != number {
            *known = 0;
        }
        key.remove(2);
        Ok(key.into())
    }

    /// Returns the profile with its samples.
    fn finish(mut self, group_by: &[Column]) -> Result<Profile> {
        let profile = &mut self.profile;
        for (key, sums) in &self.sums {
            let [event, unit, groups @ ..] = &**key else {
                continue;
            };
            let period = self.periods.get(&[event.clone(), unit.clone()]).copied();
            let event = profile.event(event, unit, period.unwrap_or(0))?;
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

/// The time of a query, and the notes of its segments.
struct About {
    time: Range<UnixNanos>,
    notes: BTreeSet<String>,
}

impl About {
    /// The maximum number of notes of a profile.
    const MAX_NOTES: usize = 32;

    fn new(query: &Query, segments: &[SegmentEntry]) -> Self {
        let mut distinct = BTreeSet::new();
        for note in segments.iter().flat_map(|entry| query.filter.notes(entry)) {
            if distinct.len() < Self::MAX_NOTES {
                distinct.insert(note);
            }
        }
        Self {
            time: query.filter.time.clone(),
            notes: distinct,
        }
    }

    fn add(self, profile: &mut Profile, coverage: &Coverage) {
        profile.start = Some(self.time.start);
        profile.duration = Some(self.time.end.0.saturating_sub(self.time.start.0));
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
