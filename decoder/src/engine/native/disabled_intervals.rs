//! The intervals of a trace with tracing disabled, in which time goes on.
//!
//! MTC packets continue while tracing is disabled (SDM volume 3, "Mini Time Counter (MTC) Packet").
//! The events of an engine carry only the last of these times. A context switch usually falls into
//! the interval, and only the first time is close to the code that ran before it.

use super::errata::Errata;
use super::packets::PacketCursor;
use super::time::TscEstimator;
use crate::Config;
use backtrail_pt::Tsc;
use backtrail_pt::packet::Packet;

/// The first time in each interval that has more than one, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DisabledIntervals(Vec<Tsc>);

/// An interval that has not ended.
struct OpenInterval {
    /// The last time before the interval.
    last_before: Option<Tsc>,
    first: Option<Tsc>,
    /// A later time follows the first.
    several: bool,
}

impl DisabledIntervals {
    /// Reads the packets of a trace without following the flow.
    pub(super) fn of(trace: &[u8], errata: Errata, config: &Config) -> Self {
        let mut found = Self::default();
        let mut packets = PacketCursor::new(trace, errata);
        while packets.sync_forward().is_ok() {
            let mut time = TscEstimator::new(config.timing, errata.skl168);
            found.read(&mut packets, &mut time);
        }
        found
    }

    /// Returns the first time in the interval that started when `at` was the last time.
    pub fn first_after(&self, at: Tsc) -> Option<Tsc> {
        let index = self.0.partition_point(|first| *first <= at);
        self.0.get(index).copied()
    }

    /// Reads packets up to the first error.
    fn read(&mut self, packets: &mut PacketCursor<'_>, time: &mut TscEstimator) {
        let mut header = false;
        let mut interval: Option<OpenInterval> = None;
        loop {
            packets.skip_branches();
            let Ok(packet) = packets.next() else { return };
            match time.apply_packet(&packet, header) {
                Ok(true) => {
                    if let (Some(interval), Some(stamp)) = (&mut interval, time.stamp())
                        && stamp.lost_mtc == 0
                    {
                        interval.add(stamp.tsc);
                    }
                    continue;
                }
                Ok(false) => {}
                Err(_) => return,
            }
            match packet {
                Packet::Psb => {
                    header = true;
                    time.psb();
                }
                Packet::PsbEnd => header = false,
                Packet::Ovf => {
                    (header, interval) = (false, None);
                    time.overflow();
                }
                Packet::TipPgd(_) => {
                    interval = Some(OpenInterval {
                        last_before: time.stamp().map(|stamp| stamp.tsc),
                        first: None,
                        several: false,
                    });
                }
                Packet::TipPge(_) => self.end(interval.take()),
                _ => {}
            }
        }
    }

    fn end(&mut self, interval: Option<OpenInterval>) {
        let first = interval
            .filter(|interval| interval.several)
            .and_then(|interval| interval.first);
        // After a backward jump of the clock, times cannot be searched.
        if let Some(first) = first.filter(|first| self.0.last().is_none_or(|last| last < first)) {
            self.0.push(first);
        }
    }
}

impl OpenInterval {
    fn add(&mut self, at: Tsc) {
        match self.first {
            None if self.last_before.is_none_or(|last_before| at > last_before) => self.first = Some(at),
            Some(first) if at > first => self.several = true,
            _ => {}
        }
    }
}
