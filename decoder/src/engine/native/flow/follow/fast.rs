//! Follows the flow by branch packets, without events between them.

use crate::engine::native::branch_cache::{BranchInput, BranchStep, OUTCOMES, StepEnd};
use crate::engine::native::code::{BasicBlock, BlockIdx, Exit};
use crate::engine::native::error::Error;
use crate::engine::native::event::TraceItem;
use crate::engine::native::flow::{FlowDecoder, Stop};
use crate::engine::native::packets::{BranchPacket, BranchPackets};
use crate::engine::native::return_stack::ANY;
use crate::{Event, PathIdx};
use backtrail_pt::Avma;

/// The state of following branch packets.
struct FastCursor<'b> {
    packets: BranchPackets<'b>,
    /// The outcomes of the last packet that are not used yet: the oldest in the highest of the low
    /// `len` bits.
    bits: u64,
    len: u32,
    /// The start of the last packet, as long as none of its outcomes is used.
    packet_start: Option<BranchPackets<'b>>,
    /// Something was followed.
    moved: bool,
    /// The time changed since the last branch packet. It is reported after the next branch.
    time_pending: bool,
}

impl<'b> FlowDecoder<'_, 'b> {
    /// Follows branch packets from block `at`, until another packet is next or the slow way is
    /// needed. Returns the next block, or [`BlockIdx::NONE`] if it must be found by its address.
    /// `None`: nothing was followed.
    pub(in crate::engine::native::flow) fn follow_fast(
        &mut self,
        mut at: BlockIdx,
    ) -> Result<Option<BlockIdx>, Stop> {
        let branch = matches!(self.ahead, Ok(TraceItem::Tnt(_) | TraceItem::Tip(_)));
        if !branch || self.outcomes_len != 0 || self.time_is_new() {
            return Ok(None);
        }
        let Some(packets) = self.events.branch_packets() else {
            return Ok(None);
        };
        let mut cursor = FastCursor {
            packets,
            bits: 0,
            len: 0,
            packet_start: None,
            moved: false,
            time_pending: false,
        };
        while at != BlockIdx::NONE && self.until_progress > 1 {
            let followed = match cursor.len {
                0 => self.read_fast(&mut cursor, &mut at),
                _ => self.use_outcomes(&mut cursor, &mut at)?,
            };
            if !followed {
                break;
            }
        }
        self.cache.packets.abandon();
        if !cursor.moved {
            return Ok(None);
        }
        if let Some(before) = cursor.packet_start.filter(|_| cursor.len > 0) {
            (cursor.packets, cursor.len) = (before, 0);
        }
        let FastCursor {
            packets, bits, len, ..
        } = cursor;
        if let Some(block) = self.cache.code.blocks.get(at.index()) {
            self.ip = block.start;
        }
        self.runaway.reset();
        self.since_address = 0;
        self.leave_fast(packets, bits, len);
        Ok(Some(at))
    }

    /// Reads the next packet after all outcomes are used, or follows cached paths over several.
    /// Returns `false` if the slow way is needed.
    #[inline(always)]
    fn read_fast(&mut self, cursor: &mut FastCursor<'b>, at: &mut BlockIdx) -> bool {
        let packets = &mut cursor.packets;
        self.cache
            .packets
            .at_packet_boundary(packets, *at, &mut self.cache.code);
        if !cursor.time_pending {
            let offset = packets.offset;
            *at = self.follow_cached(*at, packets);
            if packets.offset != offset {
                (cursor.moved, cursor.packet_start) = (true, None);
                return true;
            }
        }
        let before = *packets;
        match packets.next() {
            None if cursor.moved && self.events.apply_time_packet(packets) => {
                // A recorded path must not contain a timing packet, which may come after padding.
                self.cache.packets.abandon();
                cursor.time_pending = self.time_is_new();
            }
            None if cursor.moved && !cursor.time_pending && self.pass_header(packets, at) => {}
            None => return false,
            Some(BranchPacket::Outcomes(outcomes, count)) => {
                (cursor.bits, cursor.len, cursor.packet_start) = (outcomes, count, Some(before));
            }
            Some(BranchPacket::Target(ip, bytes)) => {
                let step =
                    self.cache
                        .branches
                        .step(*at, BranchInput::TARGET, &mut self.cache.code, self.memory);
                let Some(step) = step else {
                    cursor.packets = before;
                    return false;
                };
                self.apply_step(&step);
                self.cache.packets.record_target(bytes);
                cursor.moved = true;
                self.ip = ip;
                *at = match !cursor.time_pending || self.emit_late_time(&mut cursor.time_pending) {
                    true => self.target_block(ip),
                    false => BlockIdx::NONE,
                };
            }
        }
        true
    }

    /// Follows the next outcomes of the last packet. Returns `false` if the slow way is needed.
    #[inline(always)]
    fn use_outcomes(&mut self, cursor: &mut FastCursor<'b>, at: &mut BlockIdx) -> Result<bool, Stop> {
        let (bits, len) = (cursor.bits, cursor.len);
        let count = if cursor.time_pending { 1 } else { len.min(OUTCOMES) };
        let chosen = bits >> (len - count) & ((1 << count) - 1);
        let input = BranchInput::outcomes(chosen, count);
        let step = self
            .cache
            .branches
            .step(*at, input, &mut self.cache.code, self.memory);
        let Some(step) = step else {
            return Ok(false);
        };
        self.apply_step(&step);
        cursor.packet_start = None;
        cursor.moved = true;
        cursor.len -= step.used();
        *at = step.next;
        if step.end() == StepEnd::Return {
            let Some(call) = self.returns.pop() else {
                self.cache.packets.abandon();
                self.leave_fast(cursor.packets, bits, cursor.len);
                let last = self.cache.code.last_address(step.path);
                return Err(Stop::Error(Error::NoCall, last));
            };
            self.cache.packets.record_return(call);
            *at = self.return_block(call);
        }
        if cursor.time_pending {
            if let Some(block) = self.cache.code.blocks.get(at.index()) {
                self.ip = block.start;
            }
            if !self.emit_late_time(&mut cursor.time_pending) {
                *at = BlockIdx::NONE;
            }
        }
        Ok(true)
    }

    /// Skips a PSB+ before block `at`, if only its time is new. Returns whether it did.
    fn pass_header(&mut self, packets: &mut BranchPackets<'b>, at: &mut BlockIdx) -> bool {
        let Some(&BasicBlock { start, .. }) = self.cache.code.blocks.get(at.index()) else {
            return false;
        };
        let psb = packets.offset;
        let progress = &self.progress;
        if progress.is_before_start()
            || self
                .events
                .pass_header(packets, start, |psb| progress.is_boundary(psb))
                .is_none()
        {
            return false;
        }
        self.cache.packets.abandon();
        self.ip = start;
        self.runaway.pass_psb(psb);
        let changes = self.changes;
        self.emit_time(self.events.time());
        self.emit_event(Event::Enabled {
            at: Avma(start),
            status: true,
        });
        if self.changes != changes {
            *at = BlockIdx::NONE;
        }
        true
    }

    /// Reports the pending time. Returns whether the code is unchanged.
    fn emit_late_time(&mut self, time_pending: &mut bool) -> bool {
        *time_pending = false;
        let changes = self.changes;
        self.emit_time(self.events.time());
        changes == self.changes
    }

    /// Applies a step: its blocks have run.
    #[inline]
    fn apply_step(&mut self, step: &BranchStep) {
        self.push_path(step.path);
        let Some(effect) = self.cache.branches.effect(step.effect()) else {
            return self.cache.packets.record_step(step.path, &[], 0);
        };
        self.cache.branches.apply(effect, &mut self.returns);
        let calls = self.cache.branches.calls(effect);
        self.cache.packets.record_step(step.path, calls, effect.max_depth);
        if effect.returns {
            self.cache.packets.record_return(ANY);
        }
    }

    #[inline]
    pub(in crate::engine::native::flow) fn push_path(&mut self, path: PathIdx) {
        self.batch.push(path);
        self.until_progress -= 1;
    }

    /// Returns to the event reader after the packets read here.
    fn leave_fast(&mut self, packets: BranchPackets<'b>, outcomes: u64, len: u32) {
        (self.outcomes, self.outcomes_len) = (outcomes, len);
        self.passed_psb = None;
        self.events.resume(packets);
        self.read_ahead();
    }

    /// Returns the block that a call returns to; the call is given by the block that ends in it.
    #[inline]
    fn return_block(&mut self, call: BlockIdx) -> BlockIdx {
        let Some(from) = self.cache.code.blocks.get(call.index()) else {
            return BlockIdx::NONE;
        };
        self.ip = from.end;
        if let Some(next) = self.cache.code.blocks.get(from.next.index())
            && next.exit != Exit::Invalidated
        {
            return from.next;
        }
        let Ok(next) = self.find_block(self.ip) else {
            return BlockIdx::NONE;
        };
        if let Some(from) = self.cache.code.blocks.get_mut(call.index()) {
            from.next = next;
        }
        next
    }

    /// Returns the block at a branch target.
    #[inline]
    fn target_block(&mut self, ip: u64) -> BlockIdx {
        self.cache
            .code
            .at_target(ip, self.memory)
            .unwrap_or(BlockIdx::NONE)
    }
}
