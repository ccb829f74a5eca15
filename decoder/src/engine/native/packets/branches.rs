//! A fast reader of branch packets: short and long TNT, and TIP.
//!
//! The layouts are those of [`backtrail_pt::parser`] (SDM volume 3, "Packet Definitions"). These
//! packets far outnumber all others.

use backtrail_pt::{Avma, LastIp};

/// Reads branch packets until another packet is next.
#[derive(Clone, Copy)]
pub(in crate::engine::native) struct BranchPackets<'a> {
    trace: &'a [u8],
    /// The offset of the next packet.
    pub offset: usize,
    last_ip: u64,
}

/// A branch packet.
pub(in crate::engine::native) enum BranchPacket {
    /// The number of outcomes, and the outcomes with the oldest in the highest bit.
    Outcomes(u64, u32),
    /// A target address, and the low bits of it that the packet carries. The last IP provides the
    /// others.
    Target(u64, IpBytes),
}

/// The low bits of an address that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine::native) struct IpBytes {
    half: u8,
}

impl IpBytes {
    pub const ALL: Self = Self { half: 32 };
    const B16: Self = Self { half: 8 };
    const B32: Self = Self { half: 16 };

    /// Returns the address bits above the low bits.
    #[inline]
    pub fn above(self, address: u64) -> u64 {
        // Two shifts by half: a shift by the full width is not defined.
        address >> self.half >> self.half
    }
}

impl<'a> BranchPackets<'a> {
    pub fn new(trace: &'a [u8], offset: usize, last_ip: LastIp) -> Self {
        Self {
            trace,
            offset,
            last_ip: last_ip.get().0,
        }
    }

    /// Returns the last IP.
    #[inline]
    pub fn ip(&self) -> u64 {
        self.last_ip
    }

    /// Returns the next `LEN` bytes; `None` if fewer are left.
    #[inline]
    pub fn window<const LEN: usize>(&self) -> Option<&'a [u8; LEN]> {
        self.window_at(self.offset)
    }

    /// Returns `LEN` bytes from an offset on.
    #[inline]
    pub fn window_at<const LEN: usize>(&self, offset: usize) -> Option<&'a [u8; LEN]> {
        self.trace.get(offset..)?.first_chunk()
    }

    /// Skips `len` bytes whose content is known, and sets the last IP if `ip` is given.
    #[inline]
    pub fn skip(&mut self, len: usize, ip: Option<u64>) {
        self.offset += len;
        self.last_ip = ip.unwrap_or(self.last_ip);
    }

    /// Returns the length of the next packet if it is a branch packet, else a very large number.
    pub fn next_len(&self) -> usize {
        match self.trace.get(self.offset) {
            Some(&first) if first & 1 == 0 && first != 2 => 1,
            Some(0x2d) => 3,
            Some(0x4d) => 5,
            Some(0x6d) => 7,
            _ => usize::MAX / 2,
        }
    }

    /// Returns whether the next packet is a branch packet.
    pub fn is_at_branch(&self) -> bool {
        self.clone().next().is_some()
    }

    pub fn last_ip(&self) -> LastIp {
        LastIp::new(Avma(self.last_ip))
    }

    /// Returns the next packet; `None` if it is of another kind, or needs the full parser. Skips
    /// padding.
    #[inline]
    pub fn next(&mut self) -> Option<BranchPacket> {
        loop {
            let rest = self.trace.get(self.offset..)?;
            let &first = rest.first()?;
            if first & 1 == 0 && first > 2 {
                let count = 6 - first.leading_zeros();
                self.offset += 1;
                return Some(BranchPacket::Outcomes(
                    u64::from(first >> 1) & !(1 << count),
                    count,
                ));
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
                    Some(self.target(3, self.last_ip & !0xffff | low, IpBytes::B16))
                }
                0x4d => {
                    let bytes = rest.get(1..5)?.first_chunk()?;
                    let low = u64::from(u32::from_le_bytes(*bytes));
                    Some(self.target(5, self.last_ip & !0xffff_ffff | low, IpBytes::B32))
                }
                0x6d => {
                    let &[a, b, c, d, e, f] = rest.get(1..7)?.first_chunk()?;
                    let ip = u64::from_le_bytes([0, 0, a, b, c, d, e, f]) as i64 >> 16;
                    Some(self.target(7, ip as u64, IpBytes::ALL))
                }
                _ => None,
            };
        }
    }

    #[inline]
    fn target(&mut self, len: usize, ip: u64, bytes: IpBytes) -> BranchPacket {
        self.offset += len;
        self.last_ip = ip;
        BranchPacket::Target(ip, bytes)
    }

    /// Reads a long TNT.
    fn long(&mut self, rest: &[u8]) -> Option<BranchPacket> {
        let &[0x02, 0xa3, a, b, c, d, e, f] = rest.first_chunk()? else {
            return None;
        };
        let payload = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let count = 63u32.checked_sub(payload.leading_zeros())?;
        if count == 0 {
            return None;
        }
        self.offset += 8;
        Some(BranchPacket::Outcomes(payload & !(1 << count), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the target of a TIP after a last IP, and the bits that the packet carries.
    fn target(tip: &[u8], last_ip: u64) -> (u64, IpBytes) {
        let mut packets = BranchPackets::new(tip, 0, LastIp::new(Avma(last_ip)));
        match packets.next() {
            Some(BranchPacket::Target(ip, bytes)) => (ip, bytes),
            _ => panic!("no target"),
        }
    }

    #[test]
    fn target_combines_packet_bytes_and_last_ip() {
        let tips: [(&[u8], u32); 3] = [
            (&[0x2d, 1, 2], 16),
            (&[0x4d, 1, 2, 3, 4], 32),
            (&[0x6d, 1, 2, 3, 4, 5, 6], 64),
        ];
        let before = 0x7f12_3456_789a;
        for (tip, bits) in tips {
            let (ip, bytes) = target(tip, before);
            for bit in 0..64 {
                let other = before ^ 1 << bit;
                let counts = bit >= bits;
                assert_eq!(
                    bytes.above(other) != bytes.above(before),
                    counts,
                    "bit {bit} of {bits}"
                );
                assert_eq!(target(tip, other).0 != ip, counts, "bit {bit} of {bits}");
            }
        }
    }
}
