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
    /// A segment has such a part of what is left at most,
    const PARTS_OF_REST: usize = 8;
    /// but such a part of others at least.
    const PARTS_OF_LEAST: usize = 16;

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
    ///
    /// Towards the end of the trace segments become shorter, so that nobody waits long for who has the last.
    pub fn end_of(&self, from: usize) -> Option<usize> {
        let rest = self.trace.len().saturating_sub(from);
        let least = self.least.min(rest / Self::PARTS_OF_REST);
        let least = least.max(self.least / Self::PARTS_OF_LEAST).max(1);
        let mut from = from.saturating_add(least);
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

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::encoder::TimingOptions;
    use backtrail_pt::{Avma, Encoder, EncoderOptions, TimingParams, Tsc};

    const TIMING: TimingParams = TimingParams {
        mtc_freq: 3,
        nom_freq: 30,
        cpuid_15h_eax: 1,
        cpuid_15h_ebx: 64,
    };

    /// Branches with all kinds of time packets.
    fn trace() -> Vec<u8> {
        let mut encoder = Encoder::new(EncoderOptions {
            psb_period: 512,
            timing: Some(TimingOptions {
                params: TIMING,
                mtc: true,
                cyc: true,
            }),
            ..EncoderOptions::default()
        });
        encoder.set_time(Tsc(1 << 40));
        encoder.start();
        encoder.enable(Avma(0x1000));
        for round in 0..20_000u64 {
            encoder.set_time(Tsc((1 << 40) + round * 37 % 1000 + round * 1000));
            if encoder.psb_due() {
                encoder.psb(Avma(0x1000));
            }
            encoder.conditional(round % 7 < 3);
        }
        encoder.take()
    }

    #[test]
    fn the_time_at_a_cut_is_the_same_from_wherever_it_is_known() {
        let trace = trace();
        let config = Config {
            timing: TIMING,
            ..Config::default()
        };
        let scout = Scout::new(&trace, Errata::default(), &config, 3000);
        let cuts: Vec<usize> = std::iter::successors(scout.end_of(0), |&from| scout.end_of(from)).collect();
        assert!(cuts.len() > 5);
        // Near the end they are shorter.
        let least = |from| 3000.min((trace.len() - from) / 8).max(3000 / 16);
        assert!(cuts.windows(2).all(|cuts| cuts[0] + least(cuts[0]) <= cuts[1]));
        assert!(cuts.iter().any(|&cut| trace.len() - cut < 3000));
        let mut known = Known::NOTHING;
        for &cut in &cuts {
            let direct = scout.segment(&Known::NOTHING, cut, None).unwrap();
            let next = scout.segment(&known, cut, None).unwrap();
            assert!(next.time.as_ref().and_then(Time::stamp).is_some());
            assert_eq!(direct.time, next.time);
            assert_ne!(known.time, next.time);
            known = next.known();
            assert_eq!(scout.segment(&known, cut, None).unwrap().time, next.time);
        }
    }

    #[test]
    fn a_psb_that_tells_no_place_is_no_cut_and_what_cannot_be_read_ends_it() {
        let psb = [2, 0x82].repeat(8);
        let end = [2, 0x23];
        let place = [0x7d, 0, 0x10, 0, 0, 0, 0];
        let trace = [&*psb, &end, &[4; 64], &psb, &end, &psb, &place, &end, &[5; 9]].concat();
        let scout = Scout::new(&trace, Errata::default(), &Config::default(), 16);
        let cut = scout.end_of(0).unwrap();
        assert_eq!(cut, 18 + 64 + 18);
        assert!(scout.segment(&Known::NOTHING, cut, None).is_some());
        assert_eq!(scout.end_of(cut), None);
        let spoilt = [&trace[..30], &[5; 3], &trace[33..]].concat();
        let scout = Scout::new(&spoilt, Errata::default(), &Config::default(), 16);
        assert!(scout.segment(&Known::NOTHING, cut, None).is_none());
    }
}
