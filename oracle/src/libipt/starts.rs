//! Determines the packet with which a stretch of flow starts.
//!
//! libipt does not report it. At an event it has read ahead by one event of the packet layer and
//! one of the query layer. So it may have passed several places where tracing was disabled. But
//! each "enabled" event belongs to a TIP.PGE, and each "overflow" to an OVF, in their order from
//! the PSB on. So these packets are counted with our own parser.

use backtrail_pt::packet::Packet;
use backtrail_pt::parser::Parser;

/// Finds the packets with which stretches of flow start, in order.
pub(super) struct FlowStarts<'a> {
    trace: &'a [u8],
    /// Reads the packets from `base` on.
    packets: Parser<'a>,
    base: u64,
}

impl<'a> FlowStarts<'a> {
    pub fn new(trace: &'a [u8]) -> Self {
        Self {
            trace,
            packets: Parser::new(trace),
            base: 0,
        }
    }

    /// Decoding starts at the PSB at `offset`.
    pub fn sync(&mut self, offset: u64) {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.trace.get(offset..));
        self.packets = Parser::new(rest.unwrap_or(&[]));
        self.base = offset;
    }

    /// Returns the offset of the packet of the next "enabled" event.
    pub fn enabled(&mut self) -> Option<u64> {
        self.find(|packet| matches!(packet, Packet::TipPge(_)))
    }

    /// Returns the offset of the packet of the next "overflow" event.
    pub fn overflow(&mut self) -> Option<u64> {
        self.find(|packet| matches!(packet, Packet::Ovf))
    }

    fn find(&mut self, wanted: impl Fn(&Packet) -> bool) -> Option<u64> {
        let mut packets = self.packets.by_ref().map_while(Result::ok);
        let (offset, _) = packets.find(|(_, packet)| wanted(packet))?;
        Some(self.base + offset as u64)
    }
}
