//! Samples, and the threads, labels and events that they name.

use crate::frame::StringId;
use crate::stacks::StackId;
use crate::table::table_id;
use backtrail_pt::{Cpu, Pid, Tid};
use std::hash::{Hash, Hasher};

table_id! {
    /// An event type of a profile.
    EventId
}
table_id! {
    /// A thread of a profile.
    ThreadId
}
table_id! {
    /// A set of labels of a profile.
    LabelSetId
}

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

/// An event type: the cause of samples, and the unit of their weights.
///
/// Events with the same name and unit are equal. Their weights have one unit, and can be added up,
/// even if the samples were taken with several periods.
#[derive(Clone, Debug)]
pub struct Event {
    /// The name, as `cpu`, `off-cpu` or `cache-misses`.
    pub name: StringId,
    /// The unit as pprof writes it: `nanoseconds`, `bytes`, `count`.
    pub unit: StringId,
    /// The weight after which a sample is taken. 0: unknown, each event is a sample, or the samples
    /// have several periods.
    pub period: u64,
}

impl Event {
    fn key(&self) -> (StringId, StringId) {
        (self.name, self.unit)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl Hash for Event {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The name of the process's program.
    pub process_name: StringId,
    /// The name of the thread.
    pub name: StringId,
}

/// A label: a key, and a text or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The key, as `trace_id`.
    pub key: StringId,
    /// The value.
    pub value: LabelValue,
}

/// The value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LabelValue {
    /// A text.
    Text(StringId),
    /// A number with its unit. An empty unit means none.
    Number(i64, StringId),
}

/// Labels in ascending order, without doubles.
pub type LabelSet = Box<[Label]>;

/// A sample: the weight of an event at a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The event type.
    pub event: EventId,
    /// The weight that the sample has, in the event's unit. If an agent takes one of ten
    /// samples, each weighs ten times its period. Differences may be negative.
    pub weight: i64,
    /// The stack.
    pub stack: StackId,
    /// The time. `None`: the sample is a sum over time.
    pub time: Option<UnixNanos>,
    /// The thread. `None`: the sample is a sum over threads.
    pub thread: Option<ThreadId>,
    /// The processor, if it is known.
    pub cpu: Option<Cpu>,
    /// The labels.
    pub labels: LabelSetId,
}
