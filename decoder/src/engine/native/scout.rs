//! Looks ahead for the PSBs at which a trace can be cut, and for the time there.
//!
//! It reads packets and follows no flow, which is many times faster than decoding. What it finds is a guess:
//! whether the flow passes a PSB with the same time shows when it is decoded.

use super::errata::Errata;
use super::flow::Segment;
use super::packets::{Packets, find_psb};
use super::time::Time;
use crate::Config;
use backtrail_pt::packet::{IpPayload, Packet};

/// Cuts a trace.
pub(crate) struct Scout<'a> {
    trace: &'a [u8],
    errata: Errata,
    /// The time where nothing is known of it.
    unknown: Time,
    /// Bytes of a segment at least.
    least: usize,
}

/// What is known of the time before a PSB, or where the trace begins.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    at: usize,
    /// `None`: nothing.
    time: Option<Time>,
}

impl Known {
    /// Where a trace begins.
    pub const NOTHING: Self = Self { at: 0, time: None };

    pub(super) fn new(at: usize, time: Option<Time>) -> Self {
        Self { at, time }
    }

    /// Where that is in the trace.
    pub fn at(&self) -> usize {
        self.at
    }
}

impl<'a> Scout<'a> {
    pub(super) fn new(trace: &'a [u8], errata: Errata, config: &Config, least: usize) -> Self {
        Self {
            trace,
            errata,
            unknown: Time::new(config.timing, errata.skl168),
            least,
        }
    }

    /// There is a PSB to begin at.
    pub fn may_begin(&self) -> bool {
        find_psb(self.trace, 0).is_some()
    }

    /// Where a segment that begins at `from` ends: at the first PSB, of those far enough behind it, where the flow can be
    /// taken up; `None`: where the trace ends.
    pub fn end_of(&self, from: usize) -> Option<usize> {
        let mut from = from.saturating_add(self.least.max(1));
        loop {
            let psb = find_psb(self.trace, from)?;
            if self.tells_place(psb) {
                return Some(psb);
            }
            from = psb + 1;
        }
    }

    /// The segment between two PSBs, when the time is known at the first or before it; `None`: a packet on the way cannot
    /// be read.
    pub fn segment(&self, known: &Known, from: usize, to: Option<usize>) -> Option<Segment> {
        let time = match known.at == from {
            true => known.time.clone(),
            false => Some(self.time_at(known, from)?),
        };
        Some(Segment { from, time, to })
    }

    /// The PSB+ tells where the flow is.
    fn tells_place(&self, psb: usize) -> bool {
        let mut packets = self.packets(psb);
        let mut place = false;
        loop {
            match packets.next() {
                Ok(Packet::Fup(payload)) => place = payload != IpPayload::Suppressed,
                // What it tells is wrong where tracing begins behind it: erratum BDM70.
                Ok(Packet::PsbEnd) => {
                    let mut begins = || matches!(packets.next(), Ok(Packet::TipPge(_)));
                    return place && !(self.errata.bdm70 && begins());
                }
                Ok(Packet::Ovf) | Err(_) => return false,
                Ok(_) => {}
            }
        }
    }

    /// The time before the PSB at `to`, by all packets since it was known.
    fn time_at(&self, known: &Known, to: usize) -> Option<Time> {
        let mut time = known.time.as_ref().unwrap_or(&self.unknown).clone();
        let mut packets = self.packets(find_psb(self.trace, known.at)?);
        let mut header = false;
        loop {
            packets.skip_branches();
            let packet = packets.next().ok()?;
            if packets.begin() >= to {
                return (packets.begin() == to).then_some(time);
            }
            if time.take(&packet, header).ok()? {
                continue;
            }
            match packet {
                Packet::Psb => {
                    header = true;
                    time.psb();
                }
                Packet::Ovf => {
                    header = false;
                    time.overflow();
                }
                Packet::PsbEnd => header = false,
                _ => {}
            }
        }
    }

    /// The packets from an offset on.
    fn packets(&self, at: usize) -> Packets<'a> {
        let mut packets = Packets::new(self.trace, self.errata);
        packets.seek(at);
        packets
    }
}
