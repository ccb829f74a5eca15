//! Looks ahead for the PSBs at which a trace can be cut.
//!
//! What it finds is a guess: whether the flow passes a PSB shows when it is decoded.

use super::errata::Errata;
use super::packets::{Packets, find_psb};
use backtrail_pt::packet::{IpPayload, Packet};

/// Cuts a trace.
pub(crate) struct Scout<'a> {
    trace: &'a [u8],
    errata: Errata,
    /// Bytes of a segment at least.
    least: usize,
}

impl<'a> Scout<'a> {
    /// A segment has such a part of what is left at most,
    const PARTS_OF_REST: usize = 8;
    /// but such a part of others at least.
    const PARTS_OF_LEAST: usize = 16;

    pub(super) fn new(trace: &'a [u8], errata: Errata, least: usize) -> Self {
        Self { trace, errata, least }
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

    /// How many long segments there are from `from` on.
    pub fn segments_from(&self, from: usize) -> usize {
        self.trace.len().saturating_sub(from) / self.least.max(1)
    }

    /// The PSB+ tells where the flow is.
    fn tells_place(&self, psb: usize) -> bool {
        let mut packets = Packets::new(self.trace, self.errata);
        packets.seek(psb);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::{Avma, Encoder, EncoderOptions};

    /// Branches, and a PSB each 512 bytes.
    fn trace() -> Vec<u8> {
        let mut encoder = Encoder::new(EncoderOptions {
            psb_period: 512,
            ..EncoderOptions::default()
        });
        encoder.start();
        encoder.enable(Avma(0x1000));
        for round in 0..200_000u64 {
            if encoder.psb_due() {
                encoder.psb(Avma(0x1000));
            }
            encoder.conditional(round % 7 < 3);
        }
        encoder.take()
    }

    #[test]
    fn segments_are_long_enough_and_shorter_near_the_end() {
        let trace = trace();
        let scout = Scout::new(&trace, Errata::default(), 3000);
        let cuts: Vec<usize> = std::iter::successors(scout.end_of(0), |&from| scout.end_of(from)).collect();
        assert!(cuts.len() > 5);
        let least = |from| 3000.min((trace.len() - from) / 8).max(3000 / 16);
        assert!(cuts.windows(2).all(|cuts| cuts[0] + least(cuts[0]) <= cuts[1]));
        assert!(cuts.iter().any(|&cut| trace.len() - cut < 3000));
    }

    #[test]
    fn a_psb_that_tells_no_place_is_no_cut() {
        let psb = [2, 0x82].repeat(8);
        let end = [2, 0x23];
        let place = [0x7d, 0, 0x10, 0, 0, 0, 0];
        let trace = [&*psb, &end, &[4; 64], &psb, &end, &psb, &place, &end, &[5; 9]].concat();
        let scout = Scout::new(&trace, Errata::default(), 16);
        let cut = scout.end_of(0).unwrap();
        assert_eq!(cut, 18 + 64 + 18);
        assert_eq!(scout.end_of(cut), None);
    }
}
