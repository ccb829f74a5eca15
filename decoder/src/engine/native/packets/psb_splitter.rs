//! Splits a trace into segments at PSBs.
//!
//! The split is a guess: only decoding shows whether the flow passes a PSB.

use super::cursor::{PacketCursor, find_psb};
use crate::engine::native::errata::Errata;
use backtrail_pt::packet::{IpPayload, Packet};

/// Finds the PSBs at which segments end.
pub(crate) struct PsbSplitter<'a> {
    trace: &'a [u8],
    errata: Errata,
    /// The minimum length of a segment in bytes.
    min_len: usize,
}

impl<'a> PsbSplitter<'a> {
    /// A segment is at most 1/8 of the remaining bytes,
    const MAX_SHARE: usize = 8;
    /// and at least 1/16 of the normal size.
    const MIN_SHARE: usize = 16;

    pub(in crate::engine::native) fn new(trace: &'a [u8], errata: Errata, min_len: usize) -> Self {
        Self {
            trace,
            errata,
            min_len,
        }
    }

    /// Returns whether the trace has a PSB to start at.
    pub fn has_psb(&self) -> bool {
        find_psb(self.trace, 0).is_some()
    }

    /// Returns the end of the segment that starts at `from`: the first PSB far enough away at which
    /// decoding can start. `None`: the end of the trace.
    ///
    /// Segments become shorter towards the end of the trace, so that no thread waits long for the
    /// last one.
    pub fn segment_end(&self, from: usize) -> Option<usize> {
        let rest = self.trace.len().saturating_sub(from);
        let min_len = self.min_len.min(rest / Self::MAX_SHARE);
        let min_len = min_len.max(self.min_len / Self::MIN_SHARE).max(1);
        let mut from = from.saturating_add(min_len);
        loop {
            let psb = find_psb(self.trace, from)?;
            if self.has_address(psb) {
                return Some(psb);
            }
            from = psb + 1;
        }
    }

    /// Returns the number of full segments from `from` on.
    pub fn segments_left(&self, from: usize) -> usize {
        self.trace.len().saturating_sub(from) / self.min_len.max(1)
    }

    /// Returns whether the PSB+ has the address of the flow.
    fn has_address(&self, psb: usize) -> bool {
        let mut packets = PacketCursor::new(self.trace, self.errata);
        packets.seek(psb);
        let mut address = false;
        loop {
            match packets.next() {
                Ok(Packet::Fup(payload)) => address = payload != IpPayload::Suppressed,
                // Erratum BDM70: the address is wrong if TIP.PGE follows the PSB+.
                Ok(Packet::PsbEnd) => {
                    let mut begins = || matches!(packets.next(), Ok(Packet::TipPge(_)));
                    return address && !(self.errata.bdm70 && begins());
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

    /// Returns a trace of branches with a PSB every 512 bytes.
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
    fn segments_have_minimum_length_and_shrink_at_the_end() {
        let trace = trace();
        let splitter = PsbSplitter::new(&trace, Errata::default(), 3000);
        let cuts: Vec<usize> =
            std::iter::successors(splitter.segment_end(0), |&from| splitter.segment_end(from)).collect();
        assert!(cuts.len() > 5);
        let min_len = |from| 3000.min((trace.len() - from) / 8).max(3000 / 16);
        assert!(cuts.windows(2).all(|cuts| cuts[0] + min_len(cuts[0]) <= cuts[1]));
        assert!(cuts.iter().any(|&cut| trace.len() - cut < 3000));
    }

    #[test]
    fn psb_without_address_is_no_boundary() {
        let psb = [2, 0x82].repeat(8);
        let end = [2, 0x23];
        let address = [0x7d, 0, 0x10, 0, 0, 0, 0];
        let trace = [&*psb, &end, &[4; 64], &psb, &end, &psb, &address, &end, &[5; 9]].concat();
        let splitter = PsbSplitter::new(&trace, Errata::default(), 16);
        let cut = splitter.segment_end(0).unwrap();
        assert_eq!(cut, 18 + 64 + 18);
        assert_eq!(splitter.segment_end(cut), None);
    }
}
