//! The PSB packets at which decoding can start, and their timestamps.

use backtrail_pt::Tsc;
use backtrail_pt::packet::Packet;
use backtrail_pt::parser::Parser;

/// Returns the stamp of each PSB+ of a trace, `None` for one without. Skips broken ones, at which
/// decoding cannot start.
pub(super) fn stamps(trace: &[u8]) -> Vec<Option<Tsc>> {
    let mut parser = Parser::new(trace);
    let mut found = Vec::new();
    while parser.sync_forward().is_some() {
        let mut stamp = None;
        // A PSB+ has few packets; one that does not end is not counted.
        for packet in parser.by_ref().take(MAX_PACKETS) {
            match packet {
                Ok((_, Packet::Tsc(tsc))) => stamp = Some(Tsc(tsc)),
                Ok((_, Packet::PsbEnd)) => {
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
