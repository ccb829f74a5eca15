//! Where a trace can be entered: its PSB packets and their time stamps.

use backtrail_pt::Tsc;
use backtrail_pt::packet::Packet;
use backtrail_pt::parser::Parser;

/// The stamp of each PSB+ of a trace, `None` for one without. One that is broken is not counted, for
/// decoding cannot begin there.
pub(super) fn stamps(trace: &[u8]) -> Vec<Option<Tsc>> {
    let mut parser = Parser::new(trace);
    let mut found = Vec::new();
    while parser.sync_forward().is_some() {
        let mut stamp = None;
        // The packets of a PSB+ are few; one that does not end is none.
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
