//! A cursor over the packets of a trace, and the search for a PSB to start at.

use crate::engine::native::errata::Errata;
use crate::engine::native::error::Error;
use backtrail_pt::packet::Packet;
use backtrail_pt::parser::{ParseErrorKind, Parser};

/// Bytes of a PSB.
const PSB_LEN: usize = 16;

/// Reads packets and applies packet-level errata.
#[derive(Clone)]
pub(in crate::engine::native) struct PacketCursor<'a> {
    trace: &'a [u8],
    parser: Parser<'a>,
    /// The offset of the last packet read.
    begin: usize,
    /// The offset of the PSB at which decoding last started.
    sync: Option<usize>,
    errata: Errata,
}

impl<'a> PacketCursor<'a> {
    pub fn new(trace: &'a [u8], errata: Errata) -> Self {
        Self {
            trace,
            parser: Parser::new(trace),
            begin: 0,
            sync: None,
            errata,
        }
    }

    /// Returns all bytes of the trace.
    pub fn trace(&self) -> &'a [u8] {
        self.trace
    }

    /// Returns the offset after the last packet read.
    pub fn offset(&self) -> usize {
        self.parser.offset()
    }

    /// Returns the offset of the last packet read.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// Returns the offset of the PSB at which decoding last started.
    pub fn sync_offset(&self) -> Option<usize> {
        self.sync
    }

    /// Continues at an offset.
    pub fn seek(&mut self, offset: usize) {
        self.parser = Parser::at(self.trace, offset);
    }

    /// Continues at an offset as if no PSB had been found: a PSB there is found again.
    pub fn begin_at(&mut self, offset: usize) {
        self.sync = None;
        self.seek(offset);
    }

    /// Moves to the next PSB. Also finds one whose first bytes were read as part of another packet.
    pub fn sync_forward(&mut self) -> Result<(), Error> {
        let offset = self.offset();
        let from = if self.sync == Some(offset) {
            offset + PSB_LEN
        } else {
            offset
        };
        let found = find_psb(self.trace, from.saturating_sub(PSB_LEN - 1)).ok_or(Error::End)?;
        self.sync = Some(found);
        self.seek(found);
        Ok(())
    }

    /// Moves to the first PSB at or after an offset.
    pub fn sync_from(&mut self, offset: usize) -> Result<(), Error> {
        let found = find_psb(self.trace, offset).ok_or(Error::End)?;
        self.sync = Some(found);
        self.seek(found);
        Ok(())
    }

    /// Moves back to a PSB if it is the next to be found from `read` on. Returns whether it did.
    pub fn rewind_to(&mut self, psb: usize, read: usize) -> bool {
        let is_unread = psb + PSB_LEN > read;
        if is_unread {
            self.seek(psb);
        }
        is_unread
    }

    /// Returns the next packet; skips padding.
    pub fn next(&mut self) -> Result<Packet, Error> {
        loop {
            let offset = self.parser.offset();
            self.begin = offset;
            let packet = match self.parser.next() {
                None => return Err(Error::End),
                Some(Ok((_, packet))) => packet,
                Some(Err(error)) if self.errata.skz84 && self.is_bad_tma(offset, error.kind) => {
                    self.seek(offset + TMA_LEN + 1);
                    continue;
                }
                Some(Err(error)) => {
                    // Stay here, so that the same error is returned again.
                    self.seek(offset);
                    return Err(match error.kind {
                        ParseErrorKind::Truncated => Error::End,
                        ParseErrorKind::UnknownOpcode => Error::UnknownPacket,
                        ParseErrorKind::BadPayload => Error::BadPacket,
                        // Of another kind, so nothing is known about the packet.
                        _ => Error::UnknownPacket,
                    });
                }
            };
            match packet {
                Packet::Pad => {}
                Packet::Cyc(cycles) if self.errata.skd007 && self.hides_overflow(offset, cycles) => {
                    self.seek(offset + 3);
                    return Ok(Packet::Ovf);
                }
                packet => return Ok(packet),
            }
        }
    }

    /// Skips short TNT and TIP packets, which far outnumber all others.
    pub fn skip_branches(&mut self) {
        let mut at = self.offset();
        while let Some(&first) = self.trace.get(at) {
            at += match first {
                0x2d => 3,
                0x4d => 5,
                0x6d => 7,
                _ if first & 1 == 0 && first > 2 => 1 + self.short_tnts(at + 1),
                _ => break,
            };
        }
        // A truncated packet is not skipped.
        if at <= self.trace.len() {
            self.seek(at);
        }
    }

    /// Returns the number of short TNTs from an offset on, in multiples of eight.
    #[inline]
    fn short_tnts(&self, from: usize) -> usize {
        let rest = self.trace.get(from..).unwrap_or(&[]);
        let (eights, _) = rest.as_chunks();
        8 * eights.iter().take_while(|eight| are_short_tnts(eight)).count()
    }

    /// Returns whether this error is about the reserved bits of a TMA.
    fn is_bad_tma(&self, offset: usize, error: ParseErrorKind) -> bool {
        error == ParseErrorKind::BadPayload && self.trace.get(offset..offset + 2) == Some(&TMA)
    }

    /// Erratum SKD007: a two-byte CYC whose second byte is the first of an OVF, followed by the
    /// OVF's second byte.
    fn hides_overflow(&self, offset: usize, cycles: u64) -> bool {
        let two = self.parser.offset() == offset + 2;
        two && cycles & !0x1f == 0x20 && self.trace.get(offset + 2) == Some(&0xf3)
    }
}

/// The first bytes of a TMA (SDM volume 3, "TMA Packet Definition"), and its length.
const TMA: [u8; 2] = [0x02, 0x73];
const TMA_LEN: usize = 7;

/// Returns whether each byte is a short TNT: bit 0 is clear, and it is neither padding nor the
/// first byte of a longer packet.
fn are_short_tnts(bytes: &[u8; 8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & ONES << 7 != 0;
    let word = u64::from_le_bytes(*bytes);
    word & ONES == 0 && !has_zero(word) && !has_zero(word ^ ONES << 1)
}

/// Returns the first PSB at or after `from`.
///
/// If the pattern continues for longer than a PSB, its last 16 bytes are the PSB: the bytes before
/// may belong to another packet.
pub(in crate::engine::native) fn find_psb(trace: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let first = backtrail_pt::parser::find_psb(trace, at)?;
        let mut end = first + PSB_LEN;
        while trace.get(end..end + 2) == Some(&[0x02, 0x82]) {
            end += 2;
        }
        let found = end - PSB_LEN;
        if found >= from {
            return Some(found);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::{Errata, PacketCursor, are_short_tnts};

    #[test]
    fn psb_is_skipped_unless_started_at() {
        let psb = [2, 0x82].repeat(8);
        let trace = [&*psb, &[4; 8], &*psb].concat();
        let mut packets = PacketCursor::new(&trace, Errata::default());
        let mut found = || {
            packets.sync_forward().ok()?;
            packets.sync_offset()
        };
        assert_eq!((found(), found(), found()), (Some(0), Some(24), None));
        packets.begin_at(24);
        assert!(packets.sync_forward().is_ok());
        assert_eq!(packets.sync_offset(), Some(24));
    }

    #[test]
    fn short_tnts_are_recognized_by_eight() {
        for first in 0..=u8::MAX {
            for at in 0..8 {
                let mut bytes = [4, 6, 8, 0xfe, 0x80, 4, 0x0c, 0x42];
                bytes[at] = first;
                let wanted = first & 1 == 0 && first > 2;
                assert_eq!(are_short_tnts(&bytes), wanted, "{bytes:x?}");
            }
        }
    }
}
