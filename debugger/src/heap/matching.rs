//! Matches the records of one function in one thread with its calls in the thread's history.
//!
//! Records have times, and calls have intervals of times. Both are in order. Each record belongs to
//! a call, but some calls have no record: those inside of another allocator function, and frees of
//! a null pointer. Intervals that overlap form groups. A record and its call are in one group. So a
//! group with as many records as calls has one match. Other groups are left open.

/// An interval of times, both ends included.
pub(super) type TimeRange = [u64; 2];

/// The match of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallMatch {
    /// The number of its record. This is certain.
    Record(usize),
    /// The match is open.
    Open(OpenGroup),
}

/// A group of calls whose match is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenGroup {
    /// The first call, and the last one.
    pub calls: [usize; 2],
    /// The number of calls.
    pub call_count: usize,
    /// The number of records.
    pub record_count: usize,
    /// Whether history is missing at the time of the group.
    pub is_incomplete: bool,
}

/// Returns the match of each call. `missing` are the times at which history is missing.
///
/// Calls and records are in the order in which they happened.
pub(super) fn match_calls(
    calls: &[TimeRange],
    records: &[TimeRange],
    missing: &[TimeRange],
) -> Vec<CallMatch> {
    #[derive(Clone, Copy)]
    enum Item {
        Call(usize),
        Record(usize),
        Missing,
    }
    let numbered = |ranges: &[TimeRange], item: fn(usize) -> Item| {
        let numbered = ranges.iter().enumerate();
        numbered
            .map(|(number, range)| (*range, item(number)))
            .collect::<Vec<_>>()
    };
    let mut items = numbered(calls, Item::Call);
    items.extend(numbered(records, Item::Record));
    items.extend(numbered(missing, |_| Item::Missing));
    items.sort_by_key(|([from, _], _)| *from);

    let mut found: Vec<(usize, CallMatch)> = Vec::with_capacity(calls.len());
    let mut items = items.into_iter().peekable();
    while let Some(([_, mut until], first)) = items.next() {
        let mut group = vec![first];
        while let Some(([_, to], item)) = items.next_if(|([from, _], _)| *from <= until) {
            until = until.max(to);
            group.push(item);
        }
        let (mut of_calls, mut of_records, mut is_incomplete) = (Vec::new(), Vec::new(), false);
        for item in group {
            match item {
                Item::Call(number) => of_calls.push(number),
                Item::Record(number) => of_records.push(number),
                Item::Missing => is_incomplete = true,
            }
        }
        of_calls.sort_unstable();
        of_records.sort_unstable();
        let Some((&first, &last)) = of_calls.first().zip(of_calls.last()) else {
            continue;
        };
        let open = CallMatch::Open(OpenGroup {
            calls: [first, last],
            call_count: of_calls.len(),
            record_count: of_records.len(),
            is_incomplete,
        });
        match of_calls.len() == of_records.len() && !is_incomplete {
            true => {
                let pairs = of_calls.into_iter().zip(of_records);
                found.extend(pairs.map(|(call, record)| (call, CallMatch::Record(record))));
            }
            false => found.extend(of_calls.into_iter().map(|call| (call, open))),
        }
    }
    found.sort_by_key(|(call, _)| *call);
    found.into_iter().map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(found: &[CallMatch]) -> Vec<Option<usize>> {
        let number = |found: &CallMatch| match found {
            CallMatch::Record(number) => Some(*number),
            CallMatch::Open(_) => None,
        };
        found.iter().map(number).collect()
    }

    #[test]
    fn equal_counts_are_matched_in_order() {
        let calls = [[0, 10], [5, 10], [20, 30]];
        let records = [[6, 6], [7, 7], [25, 26]];
        let found = match_calls(&calls, &records, &[]);
        assert_eq!(numbers(&found), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn unequal_counts_are_open_for_the_whole_group() {
        let calls = [[0, 10], [10, 20], [30, 40]];
        let records = [[15, 16], [35, 35]];
        let found = match_calls(&calls, &records, &[]);
        let open = CallMatch::Open(OpenGroup {
            calls: [0, 1],
            call_count: 2,
            record_count: 1,
            is_incomplete: false,
        });
        assert_eq!(found, [open, open, CallMatch::Record(1)]);
    }

    #[test]
    fn calls_beside_missing_history_are_open() {
        // A call of the missing history may be the one with the record.
        let found = match_calls(&[[0, 10], [50, 60]], &[[5, 5], [55, 55]], &[[10, 12]]);
        assert_eq!(numbers(&found), [None, Some(1)]);
        assert_eq!(match_calls(&[], &[[5, 5]], &[[0, 9]]), []);
    }

    /// A call: its time after the one before, and how far the bounds of its interval and of its
    /// record are from it. Then whether it has a record, and whether history misses it.
    type Event = (u64, [u64; 4], bool, bool);

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let slack = prop::array::uniform4(0..6_u64);
        let event = (
            0..12_u64,
            slack,
            prop::bool::weighted(0.8),
            prop::bool::weighted(0.1),
        );
        prop::collection::vec(event, 0..60)
    }

    proptest! {
        #[test]
        fn certain_matches_are_true(events in events()) {
            let (mut calls, mut records, mut missing) = (Vec::new(), Vec::new(), Vec::new());
            let (mut truth, mut time) = (Vec::new(), 10);
            for (step, [a, b, c, d], has_record, is_missing) in events {
                time += step;
                let range = [time - a, time + b];
                let record = has_record.then(|| {
                    records.push([time - c, time + d]);
                    records.len() - 1
                });
                if is_missing {
                    missing.push(range);
                } else {
                    calls.push(range);
                    truth.push(record);
                }
            }
            let found = match_calls(&calls, &records, &missing);
            prop_assert_eq!(found.len(), calls.len());
            for (found, truth) in numbers(&found).into_iter().zip(truth) {
                if found.is_some() {
                    prop_assert_eq!(found, truth);
                }
            }
        }

        #[test]
        fn exact_times_match_all_recorded_calls(steps in prop::collection::vec((1..5_u64, any::<bool>()), 0..50)) {
            let mut time = 0;
            let events: Vec<_> = steps
                .into_iter()
                .map(|(step, has_record)| {
                    time += step;
                    ([time; 2], has_record)
                })
                .collect();
            let calls: Vec<_> = events.iter().map(|(range, _)| *range).collect();
            let records: Vec<_> = events.iter().filter(|event| event.1).map(|(range, _)| *range).collect();
            let found = numbers(&match_calls(&calls, &records, &[]));
            for ((_, has_record), found) in events.iter().zip(found) {
                prop_assert_eq!(*has_record, found.is_some());
            }
        }
    }
}
