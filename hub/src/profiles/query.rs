//! Queries of the profile store for a selection.

use super::default_event::rank;
use super::names;
use super::selection::{Column, Selection};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blocking;
use backtrail_profile::{Profile, Sample, UnixNanos, base_unit};
use backtrail_store::{
    Cancel, Coverage, Filter, FrameSet, LimitKind, Limits, Matcher, Query, SeriesGroup, StackFilter,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time of a query. Then its result is what was read so far.
const LONGEST: Duration = Duration::from_secs(20);
/// The most memory of the sums of a query in bytes.
const MEMORY: u64 = 512 << 20;
/// The most stacks of a merged profile, where each caller's stack counts once, and the most frames.
/// Functions of that many take more than a gigabyte.
const MOST_STACKS: usize = 1 << 23;
/// See [`MOST_STACKS`].
const MOST_FRAMES: usize = 1 << 22;
/// The most values of a completion.
const MAX_VALUES: usize = 50;

/// Cancels a query when the request that asked for it has gone.
pub(super) struct CancelOnDrop(pub(super) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A note about a sum.
pub(super) const TOO_LARGE: &str = "a sum exceeds 64 bits: it is at least what is shown";

/// Returns the sum of the samples of a selection, with names and a note of what is missing.
///
/// # Errors
/// Fails if the store fails, or the query needs too much memory.
pub async fn merged(hub: &Arc<Hub>, selection: &Selection) -> Result<Profile> {
    grouped(hub, selection, &[]).await
}

/// Returns the same with a sum for each value of some columns, which are labels of the samples.
///
/// # Errors
/// As [`merged`].
pub async fn grouped(hub: &Arc<Hub>, selection: &Selection, columns: &[Column]) -> Result<Profile> {
    let query = query(selection);
    let guard = CancelOnDrop(query.cancel.clone());
    let _place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let columns: Vec<_> = columns.iter().copied().map(column_of).collect();
    let (mut profile, coverage) = hub.profiles.merge(&query, &columns).await?;
    check_size(&profile)?;
    profile.notes.extend(notes(&coverage));
    let is_at_limit = |sample: &Sample| matches!(sample.weight, i64::MIN | i64::MAX);
    if profile.samples.iter().any(is_at_limit) {
        profile.notes.push(TOO_LARGE.to_owned());
    }
    // Samples of earlier versions of the hub have the units in which they came.
    if let Err(error) = profile.convert_units() {
        profile.notes.push(error.to_string());
    }
    names::add(hub, &mut profile).await?;
    drop(guard);
    Ok(profile)
}

fn check_size(profile: &Profile) -> Result<()> {
    let limits = [
        (profile.stacks.len(), MOST_STACKS, "different callers in stacks"),
        (profile.frames.len(), MOST_FRAMES, "different frames"),
    ];
    match limits.iter().find(|(count, most, _)| count > most) {
        Some((count, most, what)) => Err(Error::TooLarge(format!(
            "the selection has {count} {what}, and at most {most} are shown; select fewer services or a shorter time"
        ))),
        None => Ok(()),
    }
}

/// Returns values of a column with a prefix, those with the most samples first, and whether there
/// are more.
///
/// # Errors
/// Fails if the store fails.
pub async fn values(
    hub: &Arc<Hub>,
    selection: &Selection,
    column: Column,
    prefix: &str,
) -> Result<(Vec<String>, bool)> {
    let query = query(selection);
    let _guard = CancelOnDrop(query.cancel.clone());
    let _place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let column = column_of(column);
    let (mut values, _) = hub
        .profiles
        .values(&query, &column, prefix, MAX_VALUES + 1)
        .await?;
    let has_more = values.len() > MAX_VALUES;
    values.truncate(MAX_VALUES);
    let texts = values.into_iter().map(|value| value.text);
    Ok((texts.filter(|text| !text.is_empty()).collect(), has_more))
}

/// Returns the query of a selection, with the limits of pages.
pub(super) fn query(selection: &Selection) -> Query {
    let times = UnixNanos(selection.times.start)..UnixNanos(selection.times.end);
    let mut filter = Filter::of_time(times);
    for (column, value) in &selection.columns {
        filter = filter.with(Matcher::equals(column_of(*column), value));
    }
    for (key, value) in &selection.labels {
        let column = backtrail_store::Column::Label(key.clone());
        filter = filter.with(Matcher::equals(column, value));
    }
    Query {
        limits: Limits {
            deadline: Some(Instant::now() + LONGEST),
            memory: MEMORY,
            skip_missing: true,
            ..Limits::default()
        },
        ..Query::new(filter)
    }
}

/// Returns the query of a selection with the stacks that its rules select, and notes of what is
/// missing in these.
///
/// # Errors
/// As [`merged`], of which the stacks are.
pub(super) async fn query_of_stacks(hub: &Arc<Hub>, selection: &Selection) -> Result<(Query, Vec<String>)> {
    if !selection.rules.select_samples() {
        return Ok((query(selection), Vec::new()));
    }
    let stacks = query(selection);
    let guard = CancelOnDrop(stacks.cancel.clone());
    let place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let (mut profile, coverage) = hub.profiles.merge(&stacks, &[]).await?;
    names::add(hub, &mut profile).await?;
    drop((guard, place));
    let rules = selection.rules.clone();
    let stacks = blocking(move || {
        let matched = rules.matched_frames(&profile)?;
        let set = |members: &Vec<bool>| Arc::new(FrameSet::of_profile(&profile, members));
        Ok(StackFilter {
            with: matched.focus.as_ref().map(set),
            without: matched.ignored.as_ref().map(set),
        })
    })
    .await?;
    let mut query = query(selection);
    query.filter.stacks = stacks;
    Ok((query, notes(&coverage)))
}

fn column_of(column: Column) -> backtrail_store::Column {
    match column {
        Column::Service => backtrail_store::Column::Service,
        Column::Host => backtrail_store::Column::Host,
        Column::Build => backtrail_store::Column::Build,
        Column::Region => backtrail_store::Column::Region,
        Column::Language => backtrail_store::Column::Language,
        Column::Event => backtrail_store::Column::Event,
        Column::Thread => backtrail_store::Column::Thread,
    }
}

/// Returns sentences about what a query left out.
pub(super) fn notes(coverage: &Coverage) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(limit) = coverage.truncated {
        let limit = match limit {
            LimitKind::Bytes => "the limit of bytes",
            LimitKind::Rows => "the limit of samples",
            LimitKind::Deadline => "the limit of time",
        };
        notes.push(format!(
            "older samples are missing: the query read {} of {} segments and then reached {limit}",
            coverage.segments_read, coverage.segments
        ));
    }
    if coverage.idle > 0 {
        notes.push(format!(
            "{} samples of idle threads in these hours were not stored, by the rule `profiles.drop_idle` of the hub",
            coverage.idle
        ));
    }
    if let Some(first) = coverage.missing.first() {
        notes.push(format!(
            "{} files of the store are missing, and their samples with them; the first is {first}",
            coverage.missing.len()
        ));
    }
    notes
}

/// Returns the values of a column with the time of their first sample in nanoseconds since 1970.
/// The time is that of the start of an interval.
///
/// # Errors
/// Fails if the store fails.
pub async fn first_samples(
    hub: &Arc<Hub>,
    selection: &Selection,
    column: Column,
    intervals: u64,
) -> Result<Vec<(String, u64)>> {
    let query = query(selection);
    let _guard = CancelOnDrop(query.cancel.clone());
    let _place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let length = selection.times.end - selection.times.start;
    let step = length.div_ceil(intervals.max(1)).max(1);
    let (found, _) = hub.profiles.series(&query, step, &[column_of(column)]).await?;
    let first = |group: SeriesGroup| {
        let at = group.weights.iter().position(|weight| *weight != 0)? as u64;
        let start = found.start.0.saturating_add(at.saturating_mul(found.step));
        let value = group.key.into_iter().next()?;
        Some((value, start.max(selection.times.start)))
    };
    Ok(found.groups.into_iter().filter_map(first).collect())
}

/// Weights of an event in equal intervals of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSeries {
    /// The event.
    pub event: String,
    /// The unit of the weights.
    pub unit: String,
    /// The start in nanoseconds since 1970.
    pub start: u64,
    /// The length of an interval in nanoseconds.
    pub step: u64,
    /// The weight of each interval.
    pub weights: Vec<i64>,
}

/// Returns the weights of each event in equal parts of the time, processor time first.
///
/// Times are in nanoseconds, and amounts of memory in bytes. Samples are those that the rules
/// select. Notes say what is missing.
///
/// # Errors
/// Fails if the store fails.
pub async fn series(
    hub: &Arc<Hub>,
    selection: &Selection,
    intervals: u64,
) -> Result<(Vec<EventSeries>, Vec<String>)> {
    let (query, mut notes) = query_of_stacks(hub, selection).await?;
    let _guard = CancelOnDrop(query.cancel.clone());
    let (stored, more) = stored_series(hub, &query, intervals).await?;
    add_notes(&mut notes, more);
    let mut series: Vec<EventSeries> = Vec::with_capacity(stored.len());
    for one in stored.into_iter().map(converted) {
        let same = |known: &&mut EventSeries| known.event == one.event && known.unit == one.unit;
        match series.iter_mut().find(same) {
            Some(known) => {
                for (sum, weight) in known.weights.iter_mut().zip(one.weights) {
                    *sum = sum.saturating_add(weight);
                }
            }
            None => series.push(one),
        }
    }
    if series.iter().any(|one| one.weights.contains(&i64::MAX)) {
        notes.push(TOO_LARGE.to_owned());
    }
    Ok((series, notes))
}

/// Adds notes that are not there.
pub(super) fn add_notes(notes: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for note in more {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// Returns a series in nanoseconds or bytes. One of another unit, or with weights that would exceed
/// 64 bits, stays as it is.
fn converted(series: EventSeries) -> EventSeries {
    let Some((unit, factor)) = base_unit(&series.unit) else {
        return series;
    };
    let weights = series.weights.iter().map(|weight| weight.checked_mul(factor));
    match weights.collect() {
        Some(weights) => EventSeries {
            unit: unit.to_owned(),
            weights,
            ..series
        },
        None => series,
    }
}

/// Returns the series of a query in the units that the store has, and notes of what is missing.
///
/// # Errors
/// Fails if the store fails.
pub(super) async fn stored_series(
    hub: &Arc<Hub>,
    query: &Query,
    intervals: u64,
) -> Result<(Vec<EventSeries>, Vec<String>)> {
    let _place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let by = [backtrail_store::Column::Event, backtrail_store::Column::Unit];
    let (found, coverage) = hub.profiles.series_of_parts(query, intervals.max(1), &by).await?;
    let mut series: Vec<EventSeries> = found
        .groups
        .into_iter()
        .map(|group| {
            let mut key = group.key.into_iter();
            EventSeries {
                event: key.next().unwrap_or_default(),
                unit: key.next().unwrap_or_default(),
                start: found.start.0,
                step: found.step,
                weights: group.weights,
            }
        })
        .collect();
    sort_series(&mut series);
    Ok((series, notes(&coverage)))
}

/// Sorts series as the view does: the event first that it shows first.
pub fn sort_series(series: &mut [EventSeries]) {
    series.sort_by_key(|one| {
        let (is_first, is_first_unit, _) = rank((&one.event, &one.unit), 0);
        (!is_first, is_first && !is_first_unit)
    });
}
