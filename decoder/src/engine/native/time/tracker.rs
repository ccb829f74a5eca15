//! Tracks the time of a decode, live or deferred.

use super::log::{LogWriter, TimingRecord};
use super::tsc::TscEstimator;
use crate::Stamp;
use crate::engine::native::error::Error;
use backtrail_pt::packet::Packet;

/// Tracks the time. A clone can read ahead, and then replace the original or be dropped.
#[derive(Clone)]
pub(in crate::engine::native) enum TimeTracker {
    /// Computes the time at once.
    Live(TscEstimator),
    /// Records the timing packets.
    Deferred(LogWriter),
}

/// The time of an event.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::native) enum EventTime {
    /// A known time.
    Resolved(Stamp),
    /// The number of timing records before it, of which the last may have changed the time.
    Logged(usize),
}

impl EventTime {
    /// Returns whether this is a different time.
    pub fn differs_from(self, other: Self) -> bool {
        match (self, other) {
            (Self::Resolved(one), Self::Resolved(other)) => one.tsc != other.tsc,
            (Self::Logged(one), Self::Logged(other)) => one != other,
            _ => true,
        }
    }
}

impl TimeTracker {
    /// Handles a packet; `header`: it is part of a PSB+. Returns whether it was a timing packet.
    pub fn apply_packet(&mut self, packet: &Packet, header: bool) -> Result<bool, Error> {
        match self {
            Self::Live(time) => time.apply_packet(packet, header),
            Self::Deferred(writer) => {
                let record = TimingRecord::of(packet, header);
                record.into_iter().for_each(|record| writer.write(record));
                Ok(record.is_some())
            }
        }
    }

    /// Handles the PSB at an offset.
    pub fn psb(&mut self, offset: usize) {
        match self {
            Self::Live(time) => time.psb(),
            Self::Deferred(writer) => writer.write(TimingRecord::Psb(offset)),
        }
    }

    /// Handles an overflow.
    pub fn overflow(&mut self) {
        match self {
            Self::Live(time) => time.overflow(),
            Self::Deferred(writer) => writer.write(TimingRecord::Overflow),
        }
    }

    /// Decoding starts again.
    pub fn reset(&mut self) {
        match self {
            Self::Live(time) => time.reset(),
            Self::Deferred(writer) => writer.write(TimingRecord::Reset),
        }
    }

    /// Keeps the packets that a clone read ahead. It was cut off from this one and is about to be
    /// dropped. An error in its packets may have changed the flow, and is known at once or later.
    pub fn keep_lookahead(&mut self, ahead: &Self) {
        if let (Self::Deferred(writer), Self::Deferred(ahead)) = (self, ahead) {
            writer.keep_lookahead(ahead);
        }
    }

    /// Returns the current time; `None`: unknown.
    pub fn now(&self) -> Option<EventTime> {
        match self {
            Self::Live(time) => time.stamp().map(EventTime::Resolved),
            Self::Deferred(writer) => Some(EventTime::Logged(writer.changed())),
        }
    }
}
