//! Follows the flow by paths of the packet cache.

use crate::engine::native::code::BlockIdx;
use crate::engine::native::flow::FlowDecoder;
use crate::engine::native::packets::BranchPackets;

impl<'b> FlowDecoder<'_, 'b> {
    /// Follows cached paths from block `at` as long as there are any. Returns the next block, or
    /// [`BlockIdx::NONE`].
    #[inline(never)]
    pub(super) fn follow_cached(&mut self, mut at: BlockIdx, packets: &mut BranchPackets<'b>) -> BlockIdx {
        let mut cursor = *packets;
        while at != BlockIdx::NONE && self.until_progress > 1 {
            let Some(target) = self.cache.packets.follow(at, &mut cursor, &mut self.returns) else {
                break;
            };
            self.push_path(target.path);
            at = target.next;
            self.cache
                .packets
                .at_packet_boundary(&cursor, at, &mut self.cache.code);
        }
        *packets = cursor;
        at
    }
}
