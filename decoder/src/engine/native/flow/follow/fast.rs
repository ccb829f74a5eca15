//! Follows the flow by branch packets, without events between them.

use crate::Event;
use crate::engine::native::branch_cache::{BranchInput, BranchStep, OUTCOMES, StepEnd};
use crate::engine::native::branch_packets::{BranchPacket, BranchPackets};
use crate::engine::native::code::{BasicBlock, Exit};
use crate::engine::native::error::Error;
use crate::engine::native::event::TraceItem;
use crate::engine::native::flow::{FlowDecoder, Stop};
use crate::engine::native::packed_step::{PackedStep, StepKind};
use crate::engine::native::return_stack::ANY;
use backtrail_pt::Avma;

impl<'b> FlowDecoder<'_, 'b> {
    /// Follows branch packets from block `at`, until another packet is next or the slow way is
    /// needed. Returns the next block, or [`BasicBlock::NONE`] if it must be found by its address.
    /// `None`: nothing was followed.
    pub(in crate::engine::native::flow) fn follow_fast(&mut self, mut at: u32) -> Result<Option<u32>, Stop> {
        let branch = matches!(self.ahead, Ok(TraceItem::Tnt(_) | TraceItem::Tip(_)));
        if !branch || self.outcomes_len != 0 || self.time_is_new() {
            return Ok(None);
        }
        let Some(mut packets) = self.events.branch_packets() else {
            return Ok(None);
        };
        let (mut bits, mut len) = (0, 0);
        // The start of the packet of which no outcome is used yet.
        let mut packet_start = None;
        let mut moved = false;
        // The time changed since the last branch packet. It is reported after the next branch.
        let mut time_pending = false;
        while at != BasicBlock::NONE && self.until_progress > 1 {
            if len == 0 {
                self.cache
                    .packets
                    .at_packet_boundary(&packets, at, &mut self.cache.code);
                if !time_pending {
                    let offset = packets.offset;
                    at = self.follow_cached(at, &mut packets);
                    if packets.offset != offset {
                        (moved, packet_start) = (true, None);
                        continue;
                    }
                }
                let before = packets;
                match packets.next() {
                    None if moved && self.events.apply_time_packet(&mut packets) => {
                        self.steps.push(before.offset, at, 0, PackedStep::NOT_REPLAYABLE);
                        // A recorded path must not contain a timing packet, which may come after
                        // padding.
                        self.cache.packets.abandon();
                        time_pending = self.time_is_new();
                        continue;
                    }
                    None if moved && !time_pending && self.pass_header(&mut packets, &mut at) => {
                        self.steps.push(before.offset, at, 0, PackedStep::NOT_REPLAYABLE);
                        continue;
                    }
                    None => break,
                    Some(BranchPacket::Outcomes(outcomes, count)) => {
                        (bits, len, packet_start) = (outcomes, count, Some(before));
                    }
                    Some(BranchPacket::Target(ip, bytes)) => {
                        let Some(step) = self.cache.branches.step(
                            at,
                            BranchInput::TARGET,
                            &mut self.cache.code,
                            self.memory,
                        ) else {
                            packets = before;
                            break;
                        };
                        self.apply_step(&step);
                        let effect = step.effect();
                        let packed = match time_pending {
                            true => PackedStep::NOT_REPLAYABLE,
                            false => PackedStep::new(StepKind::Target { effect }),
                        };
                        self.steps.push(before.offset, at, step.path, packed);
                        self.cache.packets.record_target(bytes);
                        moved = true;
                        self.ip = ip;
                        if !time_pending || self.emit_late_time(&mut time_pending) {
                            at = self.target_block(ip);
                        } else {
                            at = BasicBlock::NONE;
                        }
                    }
                }
                continue;
            }
            let count = if time_pending { 1 } else { len.min(OUTCOMES) };
            let chosen = bits >> (len - count) & ((1 << count) - 1);
            let input = BranchInput::outcomes(chosen, count);
            let Some(step) = self
                .cache
                .branches
                .step(at, input, &mut self.cache.code, self.memory)
            else {
                break;
            };
            self.apply_step(&step);
            if let Some(before) = packet_start.take() {
                let all = step.used() == len && step.end() == StepEnd::Block && !time_pending;
                let effect = step.effect();
                let packed = match all {
                    true => PackedStep::new(StepKind::Outcomes { effect }),
                    false => PackedStep::NOT_REPLAYABLE,
                };
                self.steps.push(before.offset, at, step.path, packed);
            }
            moved = true;
            len -= step.used();
            at = step.next;
            if step.end() == StepEnd::Return {
                let Some(call) = self.returns.pop() else {
                    self.cache.packets.abandon();
                    self.steps.push(packets.offset, at, 0, PackedStep::NOT_REPLAYABLE);
                    self.leave_fast(packets, bits, len);
                    return Err(Stop::Error(
                        Error::NoCall,
                        self.cache.code.last_address(step.path),
                    ));
                };
                self.cache.packets.record_return(call);
                at = self.return_block(call);
            }
            if time_pending {
                self.ip = self
                    .cache
                    .code
                    .blocks
                    .get(at as usize)
                    .map_or(self.ip, |block| block.start);
                if !self.emit_late_time(&mut time_pending) {
                    at = BasicBlock::NONE;
                }
            }
        }
        self.cache.packets.abandon();
        if !moved {
            return Ok(None);
        }
        if let Some(before) = packet_start.filter(|_| len > 0) {
            (packets, len) = (before, 0);
        }
        self.steps.push(packets.offset, at, 0, PackedStep::NOT_REPLAYABLE);
        if let Some(block) = self.cache.code.blocks.get(at as usize) {
            self.ip = block.start;
        }
        self.runaway.branched();
        self.leave_fast(packets, bits, len);
        Ok(Some(at))
    }

    /// Skips a PSB+ before block `at`, if only its time is new. Returns whether it did.
    fn pass_header(&mut self, packets: &mut BranchPackets<'b>, at: &mut u32) -> bool {
        let Some(&BasicBlock { start, .. }) = self.cache.code.blocks.get(*at as usize) else {
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
            *at = BasicBlock::NONE;
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
    pub(in crate::engine::native::flow) fn push_path(&mut self, path: u32) {
        self.batch.push(path);
        self.until_progress -= 1;
    }

    /// Returns to the event reader after the packets read here.
    fn leave_fast(&mut self, packets: BranchPackets<'b>, outcomes: u64, len: u32) {
        (self.outcomes, self.outcomes_len) = (outcomes, len);
        self.events.resume(packets);
        self.ahead = self.events.next();
    }

    /// Returns the block that a call returns to; the call is given by the block that ends in it.
    #[inline]
    fn return_block(&mut self, call: u32) -> u32 {
        let Some(from) = self.cache.code.blocks.get(call as usize) else {
            return BasicBlock::NONE;
        };
        self.ip = from.end;
        if let Some(next) = self.cache.code.blocks.get(from.next as usize)
            && next.exit != Exit::Invalidated
        {
            return from.next;
        }
        let Ok(next) = self.find_block(self.ip) else {
            return BasicBlock::NONE;
        };
        if let Some(from) = self.cache.code.blocks.get_mut(call as usize) {
            from.next = next;
        }
        next
    }

    /// Returns the block at a branch target.
    #[inline]
    fn target_block(&mut self, ip: u64) -> u32 {
        self.cache
            .code
            .at_target(ip, self.memory)
            .unwrap_or(BasicBlock::NONE)
    }
}
