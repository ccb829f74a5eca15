//! The contents of a segment in memory: the values that samples refer to, and rows of samples.

use crate::Result;
use crate::origin::Origin;
use backtrail_profile::{EventId, Id, Profile, StackId, Table, ThreadId, UnixNanos};
use std::cmp::Ordering;

/// Declares the index of a table of this crate.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        impl Id for $name {
            fn from_index(index: u32) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index! {
    /// An origin of a [`Content`].
    OriginId
}
index! {
    /// A context of a [`Content`].
    ContextId
}
index! {
    /// An event with a period of a [`Content`].
    PeriodicEventId
}

/// Labels with distinct keys in ascending order.
pub(crate) type Context = Box<[(Box<str>, Box<str>)]>;

/// An event of samples that were taken with one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeriodicEvent {
    /// The event.
    pub(crate) event: EventId,
    /// The period. 0: unknown.
    pub(crate) period: u64,
}

/// The values that rows refer to. Texts, modules, functions, frames, lines, stacks, events and
/// threads are those of a profile without samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// The profile.
    pub(crate) profile: Profile,
    /// The origins.
    pub(crate) origins: Table<OriginId, Origin>,
    /// The sets of labels.
    pub(crate) contexts: Table<ContextId, Context>,
    /// The events with their periods.
    pub(crate) events: Table<PeriodicEventId, PeriodicEvent>,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The time in microseconds since 1970, as the column has it.
    pub(crate) time: i64,
    /// The weight.
    pub(crate) weight: i64,
    /// The origin.
    pub(crate) origin: OriginId,
    /// The event.
    pub(crate) event: PeriodicEventId,
    /// The thread, if it is known.
    pub(crate) thread: Option<ThreadId>,
    /// The processor, if it is known.
    pub(crate) cpu: Option<u32>,
    /// The stack.
    pub(crate) stack: StackId,
    /// The labels.
    pub(crate) context: ContextId,
}

/// The order of a table's values, by id.
pub(crate) struct Ranks {
    origins: Vec<u32>,
    events: Vec<u32>,
    threads: Vec<u32>,
}

impl Content {
    /// Returns the id of a context.
    pub(crate) fn context(&mut self, labels: Context) -> Result<ContextId> {
        Ok(self.contexts.intern(labels)?)
    }

    /// Compares rows by service, event, host, thread and time.
    pub(crate) fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let origin = |row: &Row| self.origins.get(row.origin);
        let by_origin = match a.origin == b.origin {
            true => Ordering::Equal,
            false => origin(a).cmp(&origin(b)),
        };
        let service = |row: &Row| origin(row).map(|origin| &origin.service);
        let by_service = match by_origin {
            Ordering::Equal => Ordering::Equal,
            _ => service(a).cmp(&service(b)),
        };
        by_service
            .then_with(|| match a.event == b.event {
                true => Ordering::Equal,
                false => self.event_key(a.event).cmp(&self.event_key(b.event)),
            })
            .then(by_origin)
            .then_with(|| match a.thread == b.thread {
                true => Ordering::Equal,
                false => self.thread_key(a.thread).cmp(&self.thread_key(b.thread)),
            })
            .then(a.time.cmp(&b.time))
    }

    fn event_key(&self, event: PeriodicEventId) -> Option<(&str, &str, u64)> {
        let PeriodicEvent { event, period } = *self.events.get(event)?;
        let event = self.profile.events.get(event)?;
        let text = |id| self.profile.text(id);
        Some((text(event.name), text(event.unit), period))
    }

    fn thread_key(&self, thread: Option<ThreadId>) -> Option<(u32, u32, &str, &str)> {
        let thread = self.profile.threads.get(thread?)?;
        let text = |id| self.profile.text(id);
        Some((
            thread.pid.0,
            thread.tid.0,
            text(thread.process_name),
            text(thread.name),
        ))
    }

    /// Sorts rows as [`Content::compare`] does.
    pub(crate) fn sort(&self, rows: &mut [Row]) {
        let ranks = self.ranks();
        let rank = |ranks: &[u32], index: usize| ranks.get(index).copied().unwrap_or(u32::MAX);
        let services = self.service_ranks();
        rows.sort_by_cached_key(|row| {
            (
                rank(&services, row.origin.index()),
                rank(&ranks.events, row.event.index()),
                rank(&ranks.origins, row.origin.index()),
                row.thread.map(|thread| rank(&ranks.threads, thread.index())),
                row.time,
            )
        });
    }

    fn ranks(&self) -> Ranks {
        let events: Vec<_> = self.events.iter().map(|(id, _)| self.event_key(id)).collect();
        let threads = self.profile.threads.iter();
        let threads: Vec<_> = threads.map(|(id, _)| self.thread_key(Some(id))).collect();
        let origins: Vec<_> = self.origins.iter().map(|(_, origin)| origin).collect();
        Ranks {
            origins: ranks_of(&origins),
            events: ranks_of(&events),
            threads: ranks_of(&threads),
        }
    }

    /// Returns the rank of each origin's service. Equal services have one rank.
    fn service_ranks(&self) -> Vec<u32> {
        let services: Vec<_> = self.origins.iter().map(|(_, origin)| &origin.service).collect();
        ranks_of(&services)
    }
}

/// Returns the rank of each value among the distinct values.
fn ranks_of<T: Ord>(values: &[T]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values.get(*a).cmp(&values.get(*b)));
    let mut ranks = vec![0; values.len()];
    let mut rank = 0;
    let mut previous = None;
    for index in order {
        let value = values.get(index);
        if previous.is_some_and(|previous| previous != value) {
            rank += 1;
        }
        previous = Some(value);
        if let Some(place) = ranks.get_mut(index) {
            *place = rank;
        }
    }
    ranks
}

/// Returns the time of a sample as the column has it: in microseconds, rounded down.
pub(crate) fn column_time(time: UnixNanos) -> i64 {
    // 2^64 nanoseconds are less than 2^55 microseconds.
    (time.0 / 1000).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::Thread;
    use backtrail_pt::{Pid, Tid};
    use proptest::prelude::*;

    /// Returns contents with few values of each kind.
    fn content() -> Content {
        let mut content = Content::default();
        for service in ["web", "api"] {
            for host in ["b", "a"] {
                let origin = Origin {
                    service: service.into(),
                    host: host.into(),
                    ..Origin::default()
                };
                content.origins.intern(origin).unwrap();
            }
        }
        for name in ["wall", "cpu"] {
            let event = content.profile.event(name, "ns", 1).unwrap();
            content.events.intern(PeriodicEvent { event, period: 1 }).unwrap();
        }
        for tid in [9, 3] {
            let name = content.profile.string("worker").unwrap();
            let thread = Thread {
                pid: Pid(1),
                tid: Tid(tid),
                process_name: name,
                name,
            };
            content.profile.threads.intern(thread).unwrap();
        }
        content.contexts.intern(Box::default()).unwrap();
        content
    }

    proptest! {
        #[test]
        fn sorted_rows_are_in_the_order_of_the_comparison(
            rows in prop::collection::vec((0u32..4, 0u32..2, prop::option::of(0u32..2), 0i64..5), 0..60)
        ) {
            let content = content();
            let mut rows: Vec<_> = rows
                .into_iter()
                .map(|(origin, event, thread, time)| Row {
                    time,
                    weight: 1,
                    origin: OriginId::from_index(origin),
                    event: PeriodicEventId::from_index(event),
                    thread: thread.map(ThreadId::from_index),
                    cpu: None,
                    stack: StackId::EMPTY,
                    context: ContextId::from_index(0),
                })
                .collect();
            content.sort(&mut rows);
            prop_assert!(rows.is_sorted_by(|a, b| content.compare(a, b).is_le()));
            let services: Vec<_> = rows
                .iter()
                .map(|row| content.origins.get(row.origin).unwrap().service.clone())
                .collect();
            prop_assert!(services.is_sorted());
        }
    }
}
