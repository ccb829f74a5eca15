//! Which packet of the trace a flow begins with.
//!
//! libipt does not tell: at an event it has read on by one event of the packet layer and one of the
//! query layer, which may be beyond several places where tracing was off and on. But each of its
//! "enabled" events is of a TIP.PGE, and each "overflow" of an OVF, in their order from the PSB on where
//! decoding began. So they are counted, with our own parser.

use backtrail_pt::packet::Packet;
use backtrail_pt::parser::Parser;

/// Finds the packets with which flows begin, in their order.
pub(super) struct FlowStarts<'a> {
    trace: &'a [u8],
    /// Over the packets from `base` on.
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

    /// Decoding begins at the PSB at `offset`.
    pub fn sync(&mut self, offset: u64) {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.trace.get(offset..));
        self.packets = Parser::new(rest.unwrap_or(&[]));
        self.base = offset;
    }

    /// Where the packet of the next "enabled" event is.
    pub fn enabled(&mut self) -> Option<u64> {
        self.find(|packet| matches!(packet, Packet::TipPge(_)))
    }

    /// Where the packet of the next "overflow" event is.
    pub fn overflow(&mut self) -> Option<u64> {
        self.find(|packet| matches!(packet, Packet::Ovf))
    }

    fn find(&mut self, wanted: impl Fn(&Packet) -> bool) -> Option<u64> {
        let mut packets = self.packets.by_ref().map_while(Result::ok);
        let (offset, _) = packets.find(|(_, packet)| wanted(packet))?;
        Some(self.base + offset as u64)
    }
}
