//! Looks ahead for the PSBs at which a trace can be cut, and the time there.
//!
//! It reads packets and follows no flow, which is many times faster than decoding. What it finds is a guess:
//! whether the flow passes a PSB with the same time shows when it is decoded.

use super::errata::Errata;
use super::flow::Segment;
use super::packets::Packets;
use super::time::Time;
use crate::Config;
use backtrail_pt::packet::{IpPayload, Packet};

/// Gives out the segments of a trace in order.
pub(super) struct Scout<'a> {
    packets: Packets<'a>,
    errata: Errata,
    time: Time,
    /// Where the next segment begins.
    next: Option<(usize, Option<Time>)>,
    /// Bytes of a segment at least.
    least: usize,
}

/// A PSB+ that is being read.
struct Header {
    psb: usize,
    /// Before it.
    time: Time,
    /// It tells where the flow is.
    place: bool,
}

impl<'a> Scout<'a> {
    pub fn new(trace: &'a [u8], errata: Errata, config: &Config, least: usize) -> Self {
        let mut packets = Packets::new(trace, errata);
        let begins = packets.sync_forward().is_ok();
        Self {
            packets,
            errata,
            time: Time::new(config.timing, errata.skl168),
            next: begins.then_some((0, None)),
            least,
        }
    }

    /// The next segment; `None`: that was all.
    pub fn next(&mut self) -> Option<Segment> {
        let (from, time) = self.next.take()?;
        self.next = self.cut(from.saturating_add(self.least));
        let to = self.next.as_ref().map(|&(psb, _)| psb);
        Some(Segment { from, time, to })
    }

    /// The first PSB from `least` on where the flow can be taken up, and the time before it. Where a packet
    /// cannot be read, there is none any more.
    fn cut(&mut self, least: usize) -> Option<(usize, Option<Time>)> {
        let mut header: Option<Header> = None;
        loop {
            self.packets.skip_branches();
            let packet = self.packets.next().ok()?;
            if self.time.take(&packet, header.is_some()).ok()? {
                continue;
            }
            match packet {
                Packet::Psb => {
                    header = Some(Header {
                        psb: self.packets.begin(),
                        time: self.time.clone(),
                        place: false,
                    });
                    self.time.psb();
                }
                Packet::Fup(payload) => {
                    if let Some(header) = &mut header {
                        header.place = payload != IpPayload::Suppressed;
                    }
                }
                Packet::Ovf => {
                    header = None;
                    self.time.overflow();
                }
                Packet::PsbEnd => {
                    let found = header.take().filter(|found| found.place && found.psb >= least);
                    if let Some(found) = found.filter(|_| !self.begins()) {
                        return Some((found.psb, Some(found.time)));
                    }
                }
                _ => {}
            }
        }
    }

    /// The place that a PSB+ tells is wrong, for tracing begins behind it: erratum BDM70.
    fn begins(&self) -> bool {
        self.errata.bdm70 && matches!(self.packets.clone().next(), Ok(Packet::TipPge(_)))
    }
}
