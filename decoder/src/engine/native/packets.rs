//! The packets of a trace one after the other, and the search for the PSB to begin at.

use super::errata::Errata;
use super::error::Error;
use backtrail_pt::packet::Packet;
use backtrail_pt::parser::{ParseErrorKind, Parser};

/// Bytes of a PSB.
const PSB_LEN: usize = 16;

/// Reads packets.
#[derive(Clone)]
pub(super) struct Packets<'a> {
    trace: &'a [u8],
    parser: Parser<'a>,
    /// Where the last packet read begins.
    begin: usize,
    /// Where decoding began last.
    sync: Option<usize>,
    errata: Errata,
}

impl<'a> Packets<'a> {
    pub fn new(trace: &'a [u8], errata: Errata) -> Self {
        Self {
            trace,
            parser: Parser::new(trace),
            begin: 0,
            sync: None,
            errata,
        }
    }

    /// All bytes.
    pub fn trace(&self) -> &'a [u8] {
        self.trace
    }

    /// Offset behind the last packet read.
    pub fn offset(&self) -> usize {
        self.parser.offset()
    }

    /// Offset of the last packet read.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// Where decoding began last.
    pub fn sync_offset(&self) -> Option<usize> {
        self.sync
    }

    /// Goes on reading at an offset.
    pub fn seek(&mut self, offset: usize) {
        self.parser = Parser::at(self.trace, offset);
    }

    /// Goes on at an offset as if no PSB had been found so far: the one there may be found once more.
    pub fn begin_at(&mut self, offset: usize) {
        self.sync = None;
        self.seek(offset);
    }

    /// Goes to the next PSB. One that a packet read before has eaten the beginning of is found too.
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

    /// Goes back to a PSB, if it is the next to be found from `read` on.
    pub fn back_to(&mut self, psb: usize, read: usize) -> bool {
        let is_behind = psb + PSB_LEN > read;
        if is_behind {
            self.seek(psb);
        }
        is_behind
    }

    /// The next packet, padding left out.
    pub fn next(&mut self) -> Result<Packet, Error> {
        loop {
            let offset = self.parser.offset();
            self.begin = offset;
            let packet = match self.parser.next() {
                None => return Err(Error::End),
                Some(Ok((_, packet))) => packet,
                Some(Err(error)) => {
                    // It is not over: the same error comes again.
                    self.seek(offset);
                    return Err(match error.kind {
                        ParseErrorKind::Truncated => Error::End,
                        ParseErrorKind::UnknownOpcode => Error::UnknownPacket,
                        ParseErrorKind::BadPayload => Error::BadPacket,
                    });
                }
            };
            match packet {
                Packet::Pad => {}
                Packet::Tma { .. } if self.bad_tma(offset) => {
                    if !self.errata.skz84 {
                        self.seek(offset);
                        return Err(Error::BadPacket);
                    }
                    self.seek(offset + TMA_LEN + 1);
                }
                Packet::Cyc(cycles) if self.errata.skd007 && self.hides_overflow(offset, cycles) => {
                    self.seek(offset + 3);
                    return Ok(Packet::Ovf);
                }
                packet => return Ok(packet),
            }
        }
    }

    /// Goes over short TNT and TIP packets, which by far outnumber all others.
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
        // A packet that is cut off is none.
        if at <= self.trace.len() {
            self.seek(at);
        }
    }

    /// How many short TNTs begin at an offset, as far as eight at once can be told.
    #[inline]
    fn short_tnts(&self, from: usize) -> usize {
        let rest = self.trace.get(from..).unwrap_or(&[]);
        let (eights, _) = rest.as_chunks();
        8 * eights.iter().take_while(|eight| are_short_tnts(eight)).count()
    }

    /// Bits of a TMA are set that are reserved (SDM volume 3, "TMA Packet Definition").
    fn bad_tma(&self, offset: usize) -> bool {
        let reserved = self.trace.get(offset + 4..offset + TMA_LEN);
        reserved.is_none_or(|bytes| !matches!(bytes, [0, _, 0 | 1]))
    }

    /// Erratum SKD007: a CYC of two bytes whose second is the first of OVF, and then OVF's second.
    fn hides_overflow(&self, offset: usize, cycles: u64) -> bool {
        let two = self.parser.offset() == offset + 2;
        two && cycles & !0x1f == 0x20 && self.trace.get(offset + 2) == Some(&0xf3)
    }
}

const TMA_LEN: usize = 7;

/// Each is a short TNT: its lowest bit is 0, and it is neither padding nor the first byte of a longer packet.
fn are_short_tnts(bytes: &[u8; 8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & ONES << 7 != 0;
    let word = u64::from_le_bytes(*bytes);
    word & ONES == 0 && !has_zero(word) && !has_zero(word ^ ONES << 1)
}

/// The first PSB that begins at `from` or behind it.
///
/// Of a pattern that goes on for longer than a PSB, the last 16 bytes are the PSB: what is before may be
/// the rest of another packet.
pub(super) fn find_psb(trace: &[u8], from: usize) -> Option<usize> {
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
    use super::{Errata, Packets, are_short_tnts};

    #[test]
    fn a_psb_is_gone_past_unless_it_is_begun_at() {
        let psb = [2, 0x82].repeat(8);
        let trace = [&*psb, &[4; 8], &*psb].concat();
        let mut packets = Packets::new(&trace, Errata::default());
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
    fn short_tnts_are_told_by_eight() {
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
