//! Determines from a trace's own timestamps when it starts, and how much was written since a
//! moment.

use backtrail_pt::parser::{Parser, find_psb};
use backtrail_pt::{Packet, Tsc};

/// Bits of the value in a `TSC` packet.
const TSC_BITS: u32 = 56;

/// Returns the full counter value of a `TSC` packet, which has only the low bits. `now` is a later
/// value of the counter.
fn whole(packet: u64, now: Tsc) -> Tsc {
    let high = now.0 >> TSC_BITS << TSC_BITS;
    let whole = high | packet;
    // The low bits may have overflowed since.
    Tsc(if whole > now.0 {
        whole.wrapping_sub(1 << TSC_BITS)
    } else {
        whole
    })
}

/// Returns the first timestamp of the trace. `None`: there is none.
#[must_use]
pub fn first_timestamp(bytes: &[u8], now: Tsc) -> Option<Tsc> {
    let mut from = 0;
    while let Some(psb) = find_psb(bytes, from) {
        let found = Parser::at(bytes, psb)
            .map_while(std::result::Result::ok)
            .find_map(|packet| match packet {
                (_, Packet::Tsc(tsc)) => Some(Some(tsc)),
                (_, Packet::PsbEnd) => Some(None),
                _ => None,
            });
        if let Some(Some(tsc)) = found {
            return Some(whole(tsc, now));
        }
        from = psb + 16;
    }
    None
}

/// Returns how many bytes follow the last timestamp that is not later than `moment`. At most that
/// many bytes were written since. `None`: there is no such timestamp.
#[must_use]
pub fn written_since(bytes: &[u8], moment: Tsc, now: Tsc) -> Option<usize> {
    // Finds the last PSB that is not later. There are only a few.
    let mut psbs = Vec::new();
    let mut from = 0;
    while let Some(psb) = find_psb(bytes, from) {
        psbs.push(psb);
        from = psb + 16;
    }
    for psb in psbs.into_iter().rev() {
        let times = Parser::at(bytes, psb)
            .map_while(std::result::Result::ok)
            .filter_map(|(offset, packet)| match packet {
                Packet::Tsc(tsc) => Some((offset, whole(tsc, now))),
                _ => None,
            });
        if let Some((offset, _)) = times.take_while(|(_, tsc)| *tsc <= moment).last() {
            return Some(bytes.len() - offset);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Tsc = Tsc((3 << TSC_BITS) + 1_000_000);

    fn trace(packets: &[Packet]) -> Vec<u8> {
        let mut bytes = Vec::new();
        packets.iter().for_each(|packet| packet.write_to(&mut bytes));
        bytes
    }

    fn psb(time: u64) -> [Packet; 3] {
        [Packet::Psb, Packet::Tsc(time), Packet::PsbEnd]
    }

    #[test]
    fn first_timestamp_is_from_first_psb_with_tsc() {
        let cut = vec![0x19, 1, 2, 3];
        let mut bytes = cut.clone();
        bytes.extend(trace(&[Packet::Psb, Packet::PsbEnd, Packet::Tsc(5)]));
        bytes.extend(trace(&psb(7000)));
        assert_eq!(first_timestamp(&bytes, NOW), Some(Tsc((3 << TSC_BITS) + 7000)));
        assert_eq!(first_timestamp(&cut, NOW), None);
        assert_eq!(first_timestamp(&[], NOW), None);
    }

    #[test]
    fn packet_time_is_never_later_than_now() {
        assert_eq!(whole(1_000_000, NOW), NOW);
        // The low bits overflowed between the packet and now.
        assert_eq!(whole(1_000_001, NOW), Tsc((2 << TSC_BITS) + 1_000_001));
    }

    #[test]
    fn written_bytes_are_counted_from_last_timestamp() {
        let parts = [
            trace(&psb(1000)),
            trace(&[Packet::Tsc(2000), Packet::Pad, Packet::Pad]),
            trace(&[Packet::Tsc(3000), Packet::Pad]),
            trace(&psb(4000)),
        ];
        let bytes = parts.concat();
        let moment = |low: u64| Tsc((3 << TSC_BITS) + low);
        let since = |low| written_since(&bytes, moment(low), NOW);
        assert_eq!(since(2500), Some(parts[1..].concat().len()));
        assert_eq!(since(3000), Some(parts[2..].concat().len()));
        // The timestamp comes after the PSB.
        assert_eq!(since(9000), Some(parts[3].len() - 16));
        assert_eq!(since(999), None);
    }
}
