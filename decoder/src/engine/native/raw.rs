//! Packets of branches straight from the bytes: short and long TNT, TIP.
//!
//! The layouts are those of [`backtrail_pt::parser`] (SDM volume 3, "Packet Definitions"), for the packets
//! that by far outnumber all others.

use backtrail_pt::{Avma, LastIp};

/// Reads packets of branches as long as nothing else is next.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    trace: &'a [u8],
    /// Of the packet that is next.
    pub offset: usize,
    last_ip: u64,
}

/// What a packet tells.
pub(super) enum Branch {
    /// So many outcomes, the oldest in the highest of the low bits.
    Outcomes(u64, u32),
    /// An address, of which the packet has these bits, and the last IP the others.
    Target(u64, LowBits),
}

/// So many low bits of an address, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LowBits {
    half: u8,
}

impl LowBits {
    pub const ALL: Self = Self { half: 32 };
    const B16: Self = Self { half: 8 };
    const B32: Self = Self { half: 16 };

    /// The address without them.
    #[inline]
    pub fn above(self, address: u64) -> u64 {
        // Twice by half: no shift is as wide as an address.
        address >> self.half >> self.half
    }
}

impl<'a> Raw<'a> {
    pub fn new(trace: &'a [u8], offset: usize, last_ip: LastIp) -> Self {
        Self {
            trace,
            offset,
            last_ip: last_ip.get().0,
        }
    }

    /// The last IP.
    #[inline]
    pub fn ip(&self) -> u64 {
        self.last_ip
    }

    /// Bytes from here on; `None`: there are fewer.
    #[inline]
    pub fn window<const LEN: usize>(&self) -> Option<&'a [u8; LEN]> {
        self.window_at(self.offset)
    }

    /// Bytes from an offset on.
    #[inline]
    pub fn window_at<const LEN: usize>(&self, offset: usize) -> Option<&'a [u8; LEN]> {
        self.trace.get(offset..)?.first_chunk()
    }

    /// Goes on behind `len` bytes that are known, with the last IP of there, if it is another.
    #[inline]
    pub fn skip(&mut self, len: usize, ip: Option<u64>) {
        self.offset += len;
        self.last_ip = ip.unwrap_or(self.last_ip);
    }

    /// How many bytes from here on are those of `distance` bytes before, when `known` of them are: looks at some more of
    /// them.
    #[inline]
    pub fn same_as_before(&self, distance: usize, known: usize) -> usize {
        const AT_ONCE: usize = 32;
        const MOST: usize = 8;
        let here = self.trace.get(self.offset + known..);
        let before = self
            .offset
            .checked_sub(distance)
            .and_then(|from| self.trace.get(from + known..));
        let (Some(here), Some(before)) = (here, before) else {
            return known;
        };
        let (here, before) = (here.as_chunks::<AT_ONCE>().0, before.as_chunks().0);
        let both = here.iter().zip(before).take(MOST);
        known + both.take_while(|(one, other)| one == other).count() * AT_ONCE
    }

    /// How long the next packet is, when it is one of a branch; else long.
    pub fn next_len(&self) -> usize {
        match self.trace.get(self.offset) {
            Some(&first) if first & 1 == 0 && first != 2 => 1,
            Some(0x2d) => 3,
            Some(0x4d) => 5,
            Some(0x6d) => 7,
            _ => usize::MAX / 2,
        }
    }

    /// The next packet is one of a branch.
    pub fn is_at_branch(&self) -> bool {
        self.clone().next().is_some()
    }

    pub fn last_ip(&self) -> LastIp {
        LastIp::new(Avma(self.last_ip))
    }

    /// The next packet; `None`: it is of another kind, or needs a closer look. Padding is left out.
    #[inline]
    pub fn next(&mut self) -> Option<Branch> {
        loop {
            let rest = self.trace.get(self.offset..)?;
            let &first = rest.first()?;
            if first & 1 == 0 && first > 2 {
                let count = 6 - first.leading_zeros();
                self.offset += 1;
                return Some(Branch::Outcomes(u64::from(first >> 1) & !(1 << count), count));
            }
            return match first {
                0 => {
                    self.offset += 1;
                    continue;
                }
                0x02 => self.long(rest),
                // TIP with 16, 32 and 48 bits.
                0x2d => {
                    let bytes = rest.get(1..3)?.first_chunk()?;
                    let low = u64::from(u16::from_le_bytes(*bytes));
                    Some(self.target(3, self.last_ip & !0xffff | low, LowBits::B16))
                }
                0x4d => {
                    let bytes = rest.get(1..5)?.first_chunk()?;
                    let low = u64::from(u32::from_le_bytes(*bytes));
                    Some(self.target(5, self.last_ip & !0xffff_ffff | low, LowBits::B32))
                }
                0x6d => {
                    let &[a, b, c, d, e, f] = rest.get(1..7)?.first_chunk()?;
                    let ip = u64::from_le_bytes([0, 0, a, b, c, d, e, f]) as i64 >> 16;
                    Some(self.target(7, ip as u64, LowBits::ALL))
                }
                _ => None,
            };
        }
    }

    #[inline]
    fn target(&mut self, len: usize, ip: u64, told: LowBits) -> Branch {
        self.offset += len;
        self.last_ip = ip;
        Branch::Target(ip, told)
    }

    /// A long TNT.
    fn long(&mut self, rest: &[u8]) -> Option<Branch> {
        let &[0x02, 0xa3, a, b, c, d, e, f] = rest.first_chunk()? else {
            return None;
        };
        let payload = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let count = 63u32.checked_sub(payload.leading_zeros())?;
        if count == 0 {
            return None;
        }
        self.offset += 8;
        Some(Branch::Outcomes(payload & !(1 << count), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target that a TIP tells behind a last IP, and which bits of it.
    fn target(tip: &[u8], last_ip: u64) -> (u64, LowBits) {
        let mut raw = Raw::new(tip, 0, LastIp::new(Avma(last_ip)));
        match raw.next() {
            Some(Branch::Target(ip, told)) => (ip, told),
            _ => panic!("no target"),
        }
    }

    #[test]
    fn a_target_is_of_the_packet_and_of_what_it_leaves_of_the_last_ip() {
        let tips: [(&[u8], u32); 3] = [
            (&[0x2d, 1, 2], 16),
            (&[0x4d, 1, 2, 3, 4], 32),
            (&[0x6d, 1, 2, 3, 4, 5, 6], 64),
        ];
        let before = 0x7f12_3456_789a;
        for (tip, bits) in tips {
            let (ip, told) = target(tip, before);
            for bit in 0..64 {
                let other = before ^ 1 << bit;
                let counts = bit >= bits;
                assert_eq!(
                    told.above(other) != told.above(before),
                    counts,
                    "bit {bit} of {bits}"
                );
                assert_eq!(target(tip, other).0 != ip, counts, "bit {bit} of {bits}");
            }
        }
    }
}
