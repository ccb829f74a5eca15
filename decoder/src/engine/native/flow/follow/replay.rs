//! Replay: after a cache hit, repeat the steps that followed last time while the packet bytes
//! match.

use crate::engine::native::code::BlockIdx;
use crate::engine::native::flow::FlowDecoder;
use crate::engine::native::packed_step::StepKind;
use crate::engine::native::packets::{BranchPacket, BranchPackets};
use crate::engine::native::step_history::ReplayMatch;

/// The least average bytes of a step for replay to continue. Shorter steps are better recorded in
/// the packet cache.
const MIN_BYTES_PER_STEP: usize = 12;

impl<'b> FlowDecoder<'_, 'b> {
    /// Replays steps while the packet bytes match. Returns the next block.
    #[inline(never)]
    pub(super) fn replay(&mut self, mut matched: ReplayMatch, packets: &mut BranchPackets<'b>) -> BlockIdx {
        let begin = packets.offset;
        let most = (self.until_progress - 1) as usize;
        let (mut same, mut steps) = (0, 0);
        while steps < most {
            let (step, len) = self.steps.current(matched);
            if same < len {
                same = packets.same_as_before(matched.distance, same);
                if same < len {
                    break;
                }
            }
            let offset = packets.offset;
            let goes = match step.packed.kind() {
                StepKind::Packets { .. } => {
                    let Self { cache, returns, .. } = self;
                    cache.packets.replay(step.packed, len, packets, returns)
                }
                // Steps of other kinds pay only between packet cache paths.
                _ if offset + len < begin + steps * MIN_BYTES_PER_STEP => false,
                kind => self.replay_step(kind, len, matched, packets),
            };
            if !goes {
                break;
            }
            self.batch.push(step.path);
            matched = self.steps.advance(step, matched, offset);
            same -= len;
            steps += 1;
        }
        self.until_progress -= steps as u32;
        self.steps.finish(matched, steps)
    }

    /// Replays the next step, which is one of the branch cache.
    fn replay_step(
        &mut self,
        kind: StepKind,
        len: usize,
        matched: ReplayMatch,
        packets: &mut BranchPackets<'b>,
    ) -> bool {
        let effect = match kind {
            StepKind::Outcomes { effect } => {
                packets.skip(len, None);
                effect
            }
            StepKind::Target { effect } => {
                let mut after = *packets;
                let block = self.steps.block_after(matched);
                let there = self.cache.code.blocks.get(block.index());
                match after.next() {
                    Some(BranchPacket::Target(ip, _)) if there.is_some_and(|block| block.start == ip) => {}
                    _ => return false,
                }
                *packets = after;
                effect
            }
            StepKind::Packets { .. } | StepKind::Other => return false,
        };
        if let Some(effect) = self.cache.branches.effect(effect) {
            self.cache.branches.apply(effect, &mut self.returns);
        }
        true
    }
}
