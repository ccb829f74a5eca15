//! The last IP, which IP compression is relative to (SDM volume 3, "IP Compression").

use crate::Avma;
use crate::packet::IpPayload;

/// The last instruction pointer in a packet; zero after PSB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIp(u64);

impl LastIp {
    /// Builds a known last IP.
    #[must_use]
    pub fn new(ip: Avma) -> Self {
        Self(ip.0)
    }

    /// Returns the address.
    #[must_use]
    pub fn get(self) -> Avma {
        Avma(self.0)
    }

    /// Resets it to zero, as at PSB (and, in libipt, at OVF).
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// Decodes a payload. The address becomes the last IP. Returns `None` if it is suppressed.
    pub fn decode(&mut self, payload: IpPayload) -> Option<Avma> {
        let last = self.0;
        self.0 = match payload {
            IpPayload::Suppressed => return None,
            IpPayload::Update16(ip) => last & !0xffff | u64::from(ip),
            IpPayload::Update32(ip) => last & !0xffff_ffff | u64::from(ip),
            IpPayload::Sext48(ip) => sign_extend_48(ip),
            IpPayload::Update48(ip) => last & !LOW_48 | ip & LOW_48,
            IpPayload::Full(ip) => ip,
        };
        Some(Avma(self.0))
    }

    /// Encodes an address in two, four or six bytes, as [`Self::encode`] does, and returns half the
    /// size. Returns `None` and changes nothing if it needs another form.
    #[inline]
    pub(crate) fn encode_user(&mut self, ip: Avma) -> Option<u8> {
        if sign_extend_48(ip.0) != ip.0 {
            return None;
        }
        let differ = std::mem::replace(&mut self.0, ip.0) ^ ip.0;
        Some(1 + u8::from(differ >> 16 != 0) + u8::from(differ >> 32 != 0))
    }

    /// Returns the shortest payload for an address, which becomes the last IP.
    #[inline]
    pub fn encode(&mut self, ip: Avma) -> IpPayload {
        let (last, ip) = (std::mem::replace(&mut self.0, ip.0), ip.0);
        if ip >> 16 == last >> 16 {
            IpPayload::Update16(ip as u16)
        } else if ip >> 32 == last >> 32 {
            IpPayload::Update32(ip as u32)
        } else if sign_extend_48(ip) == ip {
            IpPayload::Sext48(ip & LOW_48)
        } else if ip >> 48 == last >> 48 {
            IpPayload::Update48(ip & LOW_48)
        } else {
            IpPayload::Full(ip)
        }
    }
}

const LOW_48: u64 = (1 << 48) - 1;

fn sign_extend_48(ip: u64) -> u64 {
    ((ip << 16) as i64 >> 16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shortest_ip_compression_is_chosen() {
        let mut last = LastIp::default();
        assert_eq!(last.encode(Avma(0x1234)), IpPayload::Update16(0x1234));
        assert_eq!(last.encode(Avma(0x40_1000)), IpPayload::Update32(0x40_1000));
        assert_eq!(
            last.encode(Avma(0x7fff_0040_1000)),
            IpPayload::Sext48(0x7fff_0040_1000)
        );
        assert_eq!(
            last.encode(Avma(0xffff_ffff_ff60_0000)),
            IpPayload::Sext48(0xffff_ff60_0000)
        );
        assert_eq!(
            last.encode(Avma(0x1_0000_0000_0000)),
            IpPayload::Full(0x1_0000_0000_0000)
        );
        assert_eq!(
            last.encode(Avma(0x1_4000_0000_0000)),
            IpPayload::Update48(0x4000_0000_0000)
        );
    }

    proptest! {
        #[test]
        fn ip_decoding_reverses_encoding(ips in prop::collection::vec(any::<u64>(), 0..50), shift in 0u32..64) {
            let (mut writer, mut reader) = (LastIp::default(), LastIp::default());
            for ip in ips {
                let ip = Avma(ip >> shift);
                let mut quick = writer;
                let form = quick.encode_user(ip);
                let payload = writer.encode(ip);
                let same = match payload {
                    IpPayload::Update16(_) => form == Some(1),
                    IpPayload::Update32(_) => form == Some(2),
                    IpPayload::Sext48(_) => form == Some(3),
                    _ => form.is_none(),
                };
                prop_assert!(same && (form.is_none() || quick == writer));
                prop_assert_eq!(reader.decode(payload), Some(ip));
            }
        }
    }
}
