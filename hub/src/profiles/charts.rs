//! Charts of a selection: heat maps with parts of a second, and distributions of weights.

use super::default_event::note_of_units;
use super::query::{self, CancelOnDrop, query_of_stacks};
use super::selection::Selection;
use crate::error::{Error, Result};
use crate::hub::Hub;
use backtrail_store::{Column, Distribution, Matcher, Query};
use std::sync::Arc;

/// The most columns of a heat map, but for one that begins before the selection.
const COLUMNS: u64 = 120;
/// The rows of a column. They divide each of the lengths below.
const ROWS: u32 = 50;
/// The lengths of columns in nanoseconds.
const LENGTHS: [u64; 20] = {
    const MILLISECOND: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MILLISECOND;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    [
        10 * MILLISECOND,
        100 * MILLISECOND,
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        15 * SECOND,
        30 * SECOND,
        MINUTE,
        2 * MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        15 * MINUTE,
        30 * MINUTE,
        HOUR,
        2 * HOUR,
        6 * HOUR,
        12 * HOUR,
        24 * HOUR,
        7 * 24 * HOUR,
    ]
};

/// An event with the unit of its weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownEvent {
    /// The name.
    pub event: String,
    /// The unit.
    pub unit: String,
}

/// Weights by time: columns, each divided into rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventHeatMap {
    /// The event.
    pub event: ShownEvent,
    /// The start of the first column in nanoseconds since 1970.
    pub start: u64,
    /// The length of a row in nanoseconds.
    pub step: u64,
    /// The weights of each column, the earliest row first.
    pub columns: Vec<Vec<i64>>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// The values of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DistributionOf {
    /// The weight of each sample.
    #[default]
    Samples,
    /// The sum of each host and interval.
    Hosts,
    /// The sum of each thread, by host and name, and interval.
    Threads,
}

impl DistributionOf {
    /// All of them, with their names in addresses.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Samples, ""),
        (Self::Hosts, "host"),
        (Self::Threads, "thread"),
    ];

    /// Returns the values of a name.
    ///
    /// # Errors
    /// Fails if there are no values of this name.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(_, one)| *one == name);
        found
            .map(|(of, _)| of)
            .ok_or_else(|| Error::Invalid(format!("per is host or thread, not \"{}\"", name.escape_debug())))
    }
}

/// The distribution of weights of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventDistribution {
    /// The event.
    pub event: ShownEvent,
    /// The values.
    pub of: DistributionOf,
    /// The length of an interval in nanoseconds, of sums.
    pub step: u64,
    /// The buckets.
    pub distribution: Distribution,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// Returns the event that charts of a query show, and a note of its other units. `None`:
/// nothing is selected.
async fn shown_event(hub: &Arc<Hub>, query: &Query) -> Result<Option<(ShownEvent, Option<String>)>> {
    let (events, _) = query::stored_series(hub, query, 1).await?;
    let Some(first) = events.first() else {
        return Ok(None);
    };
    let same = events.iter().filter(|one| one.event == first.event);
    let note = note_of_units(&first.event, &first.unit, same.map(|one| &*one.unit));
    let event = ShownEvent {
        event: first.event.clone(),
        unit: first.unit.clone(),
    };
    Ok(Some((event, note)))
}

/// Returns a query with one event.
fn of_event(mut query: Query, ShownEvent { event, unit }: &ShownEvent) -> Query {
    query.filter = query
        .filter
        .with(Matcher::equals(Column::Event, event))
        .with(Matcher::equals(Column::Unit, unit));
    query
}

/// Returns the smallest length by which a range of times has few columns.
fn length_of_columns(range: u64) -> u64 {
    let least = range.div_ceil(COLUMNS);
    let found = LENGTHS.into_iter().find(|length| *length >= least);
    // The last length is a multiple of the rows.
    let [.., last] = LENGTHS;
    found.unwrap_or_else(|| least.div_ceil(last).saturating_mul(last))
}

/// Returns the heat map of a selection. `None`: nothing is selected.
///
/// # Errors
/// Fails if the store fails.
pub async fn heat_map(hub: &Arc<Hub>, selection: &Selection) -> Result<Option<EventHeatMap>> {
    let (query, mut notes) = query_of_stacks(hub, selection).await?;
    let _guard = CancelOnDrop(query.cancel.clone());
    let Some((event, note)) = shown_event(hub, &query).await? else {
        return Ok(None);
    };
    let query = of_event(query, &event);
    let _place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let column = length_of_columns(selection.times.end - selection.times.start);
    let (found, coverage) = hub.profiles.heat_map(&query, column, ROWS).await?;
    query::add_notes(&mut notes, query::notes(&coverage).into_iter().chain(note));
    Ok(Some(EventHeatMap {
        event,
        start: found.start.0,
        step: found.step,
        columns: found.columns,
        notes,
    }))
}

/// Returns the distribution of a selection. `None`: nothing is selected.
///
/// # Errors
/// Fails if the store fails.
pub async fn distribution(
    hub: &Arc<Hub>,
    selection: &Selection,
    of: DistributionOf,
) -> Result<Option<EventDistribution>> {
    let (query, mut notes) = query_of_stacks(hub, selection).await?;
    let _guard = CancelOnDrop(query.cancel.clone());
    let Some((event, note)) = shown_event(hub, &query).await? else {
        return Ok(None);
    };
    let query = of_event(query, &event);
    let _place = hub.queries.acquire().await.map_err(|_| Error::Ending)?;
    let step = length_of_columns(selection.times.end - selection.times.start);
    let sums = async |columns: &[Column]| hub.profiles.distribution_of_sums(&query, step, columns).await;
    let (distribution, coverage) = match of {
        DistributionOf::Samples => hub.profiles.distribution(&query).await?,
        DistributionOf::Hosts => sums(&[Column::Host]).await?,
        DistributionOf::Threads => {
            sums(&[Column::Host, Column::Process, Column::Tid, Column::Thread]).await?
        }
    };
    query::add_notes(&mut notes, query::notes(&coverage).into_iter().chain(note));
    Ok(Some(EventDistribution {
        event,
        of,
        step,
        distribution,
        notes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn columns_are_few_and_divided_by_rows() {
        for range in [
            1,
            999,
            SECOND,
            60 * SECOND,
            3600 * SECOND,
            90 * 86_400 * SECOND,
            u64::MAX >> 1,
        ] {
            let length = length_of_columns(range);
            assert!(range.div_ceil(length) <= COLUMNS, "{range}: {length}");
            assert_eq!(length % u64::from(ROWS), 0, "{range}: {length}");
        }
        assert_eq!(length_of_columns(3600 * SECOND), 30 * SECOND);
        assert_eq!(length_of_columns(SECOND), 10_000_000);
    }

    #[test]
    fn unknown_values_of_a_distribution_are_refused() {
        assert_eq!(DistributionOf::named("host").unwrap(), DistributionOf::Hosts);
        let error = DistributionOf::named("<b>").unwrap_err().to_string();
        assert_eq!(error, "per is host or thread, not \"<b>\"");
    }
}
