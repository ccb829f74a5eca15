//! The PSB packets at which decoding can start, and their timestamps.

use super::errata::Errata;
use super::packets::PacketCursor;
use backtrail_pt::Tsc;
use backtrail_pt::packet::Packet;

/// Returns the stamp of each PSB+ of a trace, `None` for one without. Skips broken ones, at which
/// decoding cannot start.
pub(super) fn stamps(trace: &[u8], errata: Errata) -> Vec<Option<Tsc>> {
    let mut packets = PacketCursor::new(trace, errata);
    let mut found = Vec::new();
    while packets.sync_forward().is_ok() {
        let mut stamp = None;
        // A PSB+ has few packets; one that does not end is not counted.
        for _ in 0..MAX_PACKETS {
            match packets.next() {
                Ok(Packet::Tsc(tsc)) => stamp = Some(Tsc(tsc)),
                Ok(Packet::PsbEnd) => {
                    found.push(stamp);
                    break;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    found
}

/// Far more packets than a PSB+ has (SDM volume 3, "PSB+": below twenty kinds, once each).
const MAX_PACKETS: usize = 256;
