//! The events that are samples, and their weights.

use super::chunk::Clock;
use super::cursor::Cursor;
use super::info::RecordingInfo;
use super::metadata::{Field, Type, TypeIdx, Unit};
use super::values::Values;
use std::borrow::Cow;

/// The default interval of async-profiler for processor time, in nanoseconds.
const CPU_INTERVAL: i64 = 10_000_000;
/// The default interval of async-profiler for wall-clock time, in nanoseconds.
const WALL_INTERVAL: i64 = 50_000_000;
/// The state of a thread in a sample of processor time, if both kinds of time are sampled.
const CPU_STATE: &str = "STATE_DEFAULT";
const NANOSECONDS: &str = "nanoseconds";
const BYTES: &str = "bytes";
const COUNT: &str = "count";

/// An event that is a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleKind {
    /// `jdk.ExecutionSample`.
    Execution,
    /// `profiler.WallClockSample`.
    WallClock,
    /// `jdk.NativeMethodSample`.
    NativeMethod,
    /// `jdk.CPUTimeSample`.
    CpuTime,
    /// `jdk.ObjectAllocationInNewTLAB` and `jdk.ObjectAllocationOutsideTLAB`.
    TlabAllocation,
    /// `jdk.ObjectAllocationSample`.
    AllocationSample,
    /// `profiler.LiveObject`.
    LiveObject,
    /// `profiler.Malloc`.
    Malloc,
    /// `jdk.JavaMonitorEnter`.
    MonitorEnter,
    /// `jdk.ThreadPark`.
    Park,
    /// `profiler.NativeLock`.
    NativeLock,
}

impl SampleKind {
    /// Returns the kind of the event with a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "jdk.ExecutionSample" => Self::Execution,
            "profiler.WallClockSample" => Self::WallClock,
            "jdk.NativeMethodSample" => Self::NativeMethod,
            "jdk.CPUTimeSample" => Self::CpuTime,
            "jdk.ObjectAllocationInNewTLAB" | "jdk.ObjectAllocationOutsideTLAB" => Self::TlabAllocation,
            "jdk.ObjectAllocationSample" => Self::AllocationSample,
            "profiler.LiveObject" => Self::LiveObject,
            "profiler.Malloc" => Self::Malloc,
            "jdk.JavaMonitorEnter" => Self::MonitorEnter,
            "jdk.ThreadPark" => Self::Park,
            "profiler.NativeLock" => Self::NativeLock,
            _ => return None,
        })
    }
}

/// A reference to a constant: its type and its key.
pub(super) type ConstantKey = (TypeIdx, i64);

/// The fields of a sample that are used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleFields {
    /// The time in nanoseconds since the Unix epoch.
    pub time: Option<u64>,
    /// The thread.
    pub thread: Option<ConstantKey>,
    /// The stack.
    pub stack: Option<ConstantKey>,
    /// The state of the thread.
    pub state: Option<ConstantKey>,
    /// The class of the object or lock.
    pub class: Option<ConstantKey>,
    /// Whether the stack could not be walked.
    pub is_failed: bool,
    /// The duration in nanoseconds.
    duration: i64,
    /// The processor time of a sample in nanoseconds.
    period: i64,
    /// The size of the object.
    size: i64,
    /// The size of the thread's allocation buffer.
    tlab_size: i64,
    /// The bytes that a sampled allocation represents.
    weight: i64,
    /// The number of samples that one event is for.
    count: i64,
}

impl SampleFields {
    /// Reads the fields of an event. `None`: it is damaged.
    pub(super) fn read<'a>(
        event: &Type,
        values: &Values<'a>,
        clock: &Clock,
        cursor: Cursor<'a>,
    ) -> Option<Self> {
        let mut cursor = cursor;
        let mut fields = Self {
            count: 1,
            ..Self::default()
        };
        values.each_field(&mut cursor, event, &mut |_, field, at| {
            let number = || values.number(field, at);
            let amount = || number().unwrap_or(0).max(0);
            let length = || {
                number()
                    .and_then(|number| length(field, clock, number))
                    .unwrap_or(0)
            };
            let constant = || field.kind.filter(|_| field.is_constant).zip(number());
            match &*field.name {
                "startTime" => fields.time = number().and_then(|number| time(field, clock, number)),
                "duration" => fields.duration = length(),
                "samplingPeriod" => fields.period = length(),
                "sampledThread" | "eventThread" => fields.thread = constant(),
                "stackTrace" => fields.stack = constant(),
                "state" => fields.state = constant(),
                "objectClass" | "monitorClass" | "parkedClass" => fields.class = constant(),
                "failed" => fields.is_failed = amount() != 0,
                "allocationSize" | "size" => fields.size = amount(),
                "tlabSize" => fields.tlab_size = amount(),
                "weight" => fields.weight = amount(),
                "samples" => fields.count = amount(),
                _ => {}
            }
        })?;
        Some(fields)
    }
}

/// Returns a length in nanoseconds. Without a unit, it is in ticks.
fn length(field: &Field, clock: &Clock, number: i64) -> Option<i64> {
    let length = match field.unit {
        Some(Unit::Nanoseconds(factor)) => number.saturating_mul(factor),
        Some(Unit::Ticks) | None => clock.length(number)?,
    };
    Some(length.max(0))
}

/// Returns a time in nanoseconds since the Unix epoch. Without a unit, it is in ticks.
fn time(field: &Field, clock: &Clock, number: i64) -> Option<u64> {
    match field.unit {
        Some(Unit::Nanoseconds(factor)) => u64::try_from(number.saturating_mul(factor)).ok(),
        Some(Unit::Ticks) | None => clock.time(number),
    }
}

/// The event of the profile that a sample belongs to, and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Measure<'a> {
    /// The name of the event.
    pub event: Cow<'a, str>,
    /// The unit of the weight.
    pub unit: &'static str,
    /// The weight after which a sample is taken. 0: unknown.
    pub period: i64,
    /// The weight.
    pub weight: i64,
}

impl<'a> Measure<'a> {
    /// Returns the measure of a sample. `is_async` is whether async-profiler wrote the chunk.
    pub(super) fn new(
        kind: SampleKind,
        fields: &SampleFields,
        state: &str,
        info: &'a RecordingInfo,
        is_async: bool,
    ) -> Self {
        let of = |event: &'static str, unit, weight| Self {
            event: event.into(),
            unit,
            period: 0,
            weight,
        };
        match kind {
            SampleKind::Execution if is_async => Self::execution(state, info),
            SampleKind::Execution => of("samples", COUNT, 1),
            SampleKind::WallClock => Self::wall(fields.count, info),
            SampleKind::NativeMethod => of("native-samples", COUNT, 1),
            SampleKind::CpuTime => Self {
                period: fields.period,
                ..of("cpu", NANOSECONDS, fields.period)
            },
            SampleKind::TlabAllocation => {
                let name = if is_async { "alloc" } else { "alloc-tlab" };
                let weight = match fields.tlab_size {
                    0 => fields.size,
                    size => size,
                };
                of(name, BYTES, weight)
            }
            SampleKind::AllocationSample => of("alloc", BYTES, fields.weight),
            SampleKind::LiveObject => of("live", BYTES, fields.size),
            SampleKind::Malloc => of("malloc", BYTES, fields.size),
            SampleKind::Park if !is_async => of("park", NANOSECONDS, fields.duration),
            SampleKind::MonitorEnter | SampleKind::Park => of("lock", NANOSECONDS, fields.duration),
            SampleKind::NativeLock => of("native-lock", NANOSECONDS, fields.duration),
        }
    }

    /// Returns the measure of async-profiler's main event. Older versions report wall-clock
    /// samples as this event too.
    fn execution(state: &str, info: &'a RecordingInfo) -> Self {
        let event = info.event.as_deref();
        let is_wall_state = !matches!(state, "" | CPU_STATE);
        if event == Some("wall") || info.wall.is_some() && is_wall_state {
            return Self::wall(1, info);
        }
        match event {
            None | Some("cpu" | "itimer" | "ctimer" | "cpu-clock" | "task-clock") => {
                Self::time("cpu", info.interval.filter(|_| event.is_some()), CPU_INTERVAL, 1)
            }
            Some(event) => {
                let period = info.interval.unwrap_or(1).max(1);
                Self {
                    event: event.into(),
                    unit: COUNT,
                    period,
                    weight: period,
                }
            }
        }
    }

    fn wall(count: i64, info: &RecordingInfo) -> Self {
        let is_main = info.event.as_deref() == Some("wall");
        let interval = info.wall.or(info.interval.filter(|_| is_main));
        Self::time("wall", interval, WALL_INTERVAL, count)
    }

    /// Returns samples of time. Without an interval, they are counted.
    fn time(event: &'static str, interval: Option<i64>, default: i64, count: i64) -> Self {
        let (unit, period) = match interval {
            None => (COUNT, 1),
            Some(0) => (NANOSECONDS, default),
            Some(interval) => (NANOSECONDS, interval),
        };
        Self {
            event: event.into(),
            unit,
            period,
            weight: period.saturating_mul(count),
        }
    }
}

/// The events in the order of a profile. A report shows the last one by default.
const ORDER: [&str; 10] = [
    "native-lock",
    "live",
    "malloc",
    "alloc-tlab",
    "alloc",
    "park",
    "lock",
    "native-samples",
    "wall",
    "samples",
];

/// Returns the rank of an event. The last one is that of the highest rank.
pub(super) fn rank(event: &str) -> usize {
    match event {
        "cpu" => ORDER.len() + 1,
        _ => ORDER
            .iter()
            .position(|name| *name == event)
            .unwrap_or(ORDER.len()),
    }
}
