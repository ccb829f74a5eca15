//! Follows the flow block by block.

use crate::engine::native::code::{BasicBlock, BlockIdx, Exit};
use crate::engine::native::decode_cache::DecodeCache;
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceItem};
use crate::engine::native::flow::binding::{RetiredInstruction, SeenKinds};
use crate::engine::native::flow::runaway::is_silent;
use crate::engine::native::flow::{FlowDecoder, PROGRESS_EVERY, Stop};
use crate::{GapCause, UncompressedReturns};
use backtrail_pt::packet::Tnt;
use backtrail_pt::{Avma, Cofi};
use std::convert::Infallible;

impl FlowDecoder<'_, '_> {
    /// Follows the flow until it ends.
    pub(in crate::engine::native::flow) fn follow(&mut self) -> Stop {
        match self.try_follow() {
            Err(stop) => stop,
            Ok(never) => match never {},
        }
    }

    fn try_follow(&mut self) -> Result<Infallible, Stop> {
        loop {
            while self.is_due_before()? {
                self.apply()?;
                if self.progress.is_finished() {
                    return Err(Stop::Reached);
                }
            }
            if self.is_at_end() {
                return Err(Stop::End);
            }
            if !self.enabled {
                // The last packets may repeat that tracing is disabled.
                let is_end = self.outcomes_len == 0 && matches!(self.ahead, Err(Error::End));
                return Err(if is_end {
                    Stop::End
                } else {
                    Error::NotEnabled.into()
                });
            }
            if self.pending.is_some() {
                self.step_through_block()?;
            } else {
                self.run_blocks()?;
            }
        }
    }

    /// Returns the index of the block at an address.
    pub(in crate::engine::native::flow) fn find_block(&mut self, at: u64) -> Result<BlockIdx, Error> {
        if self.mode.is_none() {
            let there = self.memory.read(Avma(at), &mut [0]) > 0;
            return Err(if there { Error::NoMode } else { Error::NoCode });
        }
        self.cache.code.at(at, self.memory)
    }

    /// Runs whole blocks until an event is next.
    fn run_blocks(&mut self) -> Result<(), Stop> {
        let mut id = BlockIdx::NONE;
        loop {
            if id == BlockIdx::NONE {
                id = self
                    .find_block(self.ip)
                    .map_err(|error| Stop::Error(error, Some(self.ip)))?;
            }
            let Some(&block) = self.cache.code.blocks.get(id.index()) else {
                return Err(Error::NoCode.into());
            };
            if block.exit == Exit::Invalidated {
                id = BlockIdx::NONE;
                continue;
            }
            if let Some(next) = self.follow_fast(id)? {
                id = next;
                if self.errata.bdm64 {
                    self.bdm64()?;
                    id = BlockIdx::NONE;
                }
                if !self.branches_are_next() {
                    return Ok(());
                }
                continue;
            }
            if self.runaway.is_long(block.exit) && self.follow_straight_line(id) {
                id = BlockIdx::NONE;
                self.report_progress()?;
                continue;
            }
            if self.runaway.is_overlong(&block, || self.events.offset()) {
                return Err(Stop::Overlong(block.start));
            }
            if self.runaway.runs_away(block.exit) {
                return Err(self.run_away(&block, 0));
            }
            self.batch.push(block.path);
            self.count(&block);
            let from = id;
            id = match self.leave(id, &block) {
                Ok(Successor::FallThrough) => block.next,
                Ok(Successor::Taken) => block.taken,
                Ok(Successor::Indirect) => BlockIdx::NONE,
                Err(error) => return Err(self.stop_at(error, &block)),
            };
            if self.errata.bdm64 && block.exit != Exit::FallThrough {
                let ip = self.ip;
                self.bdm64()?;
                if self.ip != ip {
                    id = BlockIdx::NONE;
                }
            }
            self.report_progress()?;
            if !self.branches_are_next() {
                return Ok(());
            }
            if id == BlockIdx::NONE {
                self.link(from, &block)?;
            }
        }
    }

    /// Follows a straight-line path from this block at once, if there is one. Returns whether it
    /// did.
    #[cold]
    fn follow_straight_line(&mut self, id: BlockIdx) -> bool {
        // Under the erratum, each of the blocks may continue at the abort's address.
        if self.errata.bdm64 {
            return false;
        }
        let DecodeCache {
            straight_line: straight,
            code,
            ..
        } = &mut self.cache;
        let Some(path) = straight.from(id, code, self.memory) else {
            return false;
        };
        if !self.runaway.admits(path, self.events.offset()) {
            return false;
        }
        self.batch.push(path.path);
        self.since_address = self.since_address.saturating_add(path.instructions);
        path.calls.iter().for_each(|&call| self.returns.push(call));
        self.ip = path.end;
        true
    }

    /// Counts the instructions of a block that has run.
    #[inline]
    fn count(&mut self, block: &BasicBlock) {
        self.since_address = match is_silent(block.exit) {
            true => self.since_address.saturating_add(block.count),
            false => 0,
        };
    }

    /// Returns whether an outcome or a target is next.
    #[inline]
    fn branches_are_next(&self) -> bool {
        let ahead = || matches!(self.ahead, Ok(TraceItem::Tnt(_) | TraceItem::Tip(_)));
        self.pending.is_none() && (self.outcomes_len != 0 || ahead())
    }

    /// Returns whether the trace has a newer time than the one last reported.
    pub(in crate::engine::native::flow) fn time_is_new(&self) -> bool {
        let now = self.events.time();
        now.is_some_and(|now| self.last.is_none_or(|last| now.differs_from(last)))
    }

    /// Stores which block follows another, if it is always the same one.
    fn link(&mut self, from: BlockIdx, block: &BasicBlock) -> Result<(), Stop> {
        let next = self.ip;
        let direct = match block.exit {
            Exit::Conditional { target } | Exit::Jump { target } | Exit::Call { target }
                if target == next =>
            {
                Some(true)
            }
            Exit::Conditional { .. } | Exit::FallThrough if next == block.end => Some(false),
            _ => None,
        };
        let Some(taken) = direct else { return Ok(()) };
        let Ok(to) = self.find_block(next) else {
            return Ok(());
        };
        if let Some(block) = self.cache.code.blocks.get_mut(from.index()) {
            *(if taken { &mut block.taken } else { &mut block.next }) = to;
        }
        Ok(())
    }

    /// Returns the reason to stop after the last instruction of a block.
    fn stop_at(&self, error: Error, block: &BasicBlock) -> Stop {
        if error == Error::End {
            return Stop::End;
        }
        let last = self.cache.code.instruction(block, block.count.saturating_sub(1));
        Stop::Error(error, last.map(|(pc, _)| pc))
    }

    /// Runs the instructions of a block from number `from` on; its branch closes a circle.
    fn run_away(&mut self, block: &BasicBlock, from: u32) -> Stop {
        self.emit_instructions(block, from, block.count);
        let last = self.cache.code.instruction(block, block.count.saturating_sub(1));
        Stop::RunAway(last.map_or(block.start, |(pc, _)| pc))
    }

    /// Counts a block. Reports progress to the sink at intervals.
    pub(in crate::engine::native::flow) fn report_progress(&mut self) -> Result<(), Stop> {
        self.until_progress -= 1;
        if self.until_progress > 0 {
            return Ok(());
        }
        self.until_progress = PROGRESS_EVERY;
        self.flush();
        let offset = self.events.offset() as u64;
        match self.sink.progress(offset).is_break() {
            true => Err(Stop::Canceled),
            false => Ok(()),
        }
    }

    /// Pushes the instructions `from..to` of a block, which have run.
    pub(in crate::engine::native::flow) fn emit_instructions(
        &mut self,
        block: &BasicBlock,
        from: u32,
        to: u32,
    ) {
        if from < to
            && let Some(path) = self.cache.code.partial_path(block, from, to)
        {
            self.batch.push(path);
        }
    }

    /// Steps through the instructions of a block to the place where the pending event is due.
    fn step_through_block(&mut self) -> Result<(), Stop> {
        let ip = self.ip;
        let stop_at = |error| Stop::Error(error, Some(ip));
        let id = self.find_block(ip).map_err(stop_at)?;
        let block = *self
            .cache
            .code
            .blocks
            .get(id.index())
            .ok_or(stop_at(Error::NoCode))?;
        if self.runaway.is_overlong(&block, || self.events.offset()) {
            return Err(Stop::Overlong(block.start));
        }
        let mut emitted = 0;
        for within in 0..block.count {
            let Some((pc, code)) = self.cache.code.instruction(&block, within) else {
                break;
            };
            self.ip = pc;
            self.since_address = self.since_address.saturating_add(u32::from(within > 0));
            if within > 0 && self.is_due_before()? {
                self.emit_instructions(&block, emitted, within);
                return Ok(());
            }
            let last = within + 1 == block.count;
            if last && !self.counts_to_trigger() && self.runaway.runs_away(block.exit) {
                return Err(self.run_away(&block, emitted));
            }
            let at = RetiredInstruction {
                pc,
                len: code.len,
                cofi: code.cofi,
            };
            let mut seen = SeenKinds::default();
            while self.fetch_event_of(&block, &mut emitted, within)? && self.is_due_at(at, &mut seen) {
                self.emit_instructions(&block, emitted, within + 1);
                emitted = within + 1;
                self.ip = self.address_after(&block, at);
                let is_other = self.is_other_instruction(&block, at);
                self.apply()?;
                if is_other {
                    self.emit_lost(GapCause::OtherInstruction { at: Avma(pc) });
                }
                if !self.enabled {
                    if at.cofi == Cofi::Return && !is_other {
                        self.uncompressed_return();
                    }
                    return Ok(());
                }
                self.ip = pc;
            }
            if emitted == within + 1 && self.is_at_end() {
                return Err(Stop::End);
            }
        }
        self.emit_instructions(&block, emitted, block.count);
        self.since_address = match is_silent(block.exit) {
            true => self.since_address.saturating_add(1),
            false => 0,
        };
        self.leave(id, &block)
            .map_err(|error| self.stop_at(error, &block))?;
        if self.errata.bdm64 && block.exit != Exit::FallThrough {
            self.bdm64()?;
        }
        self.report_progress()
    }

    /// Calls [`Self::fetch_event`]. On an error, the instructions up to `within` have run.
    fn fetch_event_of(&mut self, block: &BasicBlock, emitted: &mut u32, within: u32) -> Result<bool, Stop> {
        let fetched = self.fetch_event();
        if fetched.is_err() {
            self.emit_instructions(block, *emitted, within + 1);
            *emitted = within + 1;
        }
        Ok(fetched?)
    }

    /// Returns the current address while an event of an instruction is applied: the instruction's.
    /// If the instruction disabled tracing, the next address, as far as it is known.
    fn address_after(&self, block: &BasicBlock, at: RetiredInstruction) -> u64 {
        let off = self
            .pending
            .as_ref()
            .is_some_and(|event| event.kind == EventKind::Disabled);
        match at.cofi {
            _ if !off => at.pc,
            Cofi::Jump { target } | Cofi::Call { target } => target.0,
            Cofi::Sequential => at.pc.wrapping_add(u64::from(at.len)),
            Cofi::IndirectCall => block.end,
            _ => 0,
        }
    }

    /// Goes from the last instruction of a block to the next block.
    #[inline]
    fn leave(&mut self, id: BlockIdx, block: &BasicBlock) -> Result<Successor, Error> {
        match block.exit {
            Exit::FallThrough | Exit::Invalidated => {
                self.ip = block.end;
                Ok(Successor::FallThrough)
            }
            Exit::Conditional { target } => {
                if self.next_outcome()? {
                    self.ip = target;
                    Ok(Successor::Taken)
                } else {
                    self.ip = block.end;
                    Ok(Successor::FallThrough)
                }
            }
            Exit::Jump { target } => {
                self.ip = target;
                Ok(Successor::Taken)
            }
            Exit::Call { target } => {
                // A call of the next instruction only reads its own address.
                if target != block.end {
                    self.returns.push(id);
                }
                self.ip = target;
                Ok(Successor::Taken)
            }
            Exit::IndirectCall => {
                self.returns.push(id);
                self.ip = self.next_target()?;
                Ok(Successor::Indirect)
            }
            Exit::IndirectJump | Exit::Far => {
                self.ip = self.next_target()?;
                Ok(Successor::Indirect)
            }
            Exit::Return => {
                self.ip = match self.next_outcome() {
                    Ok(true) => self.compressed_return()?,
                    Ok(false) => return Err(Error::BadReturn),
                    Err(_) => {
                        let to = self.next_target()?;
                        self.uncompressed_return();
                        to
                    }
                };
                Ok(Successor::Indirect)
            }
        }
    }

    /// Handles a return whose target is in a packet.
    fn uncompressed_return(&mut self) {
        if self.config.uncompressed_returns == UncompressedReturns::Pop {
            self.returns.pop();
        }
    }

    /// Returns the return address of the innermost call.
    fn compressed_return(&mut self) -> Result<u64, Error> {
        let call = self
            .returns
            .pop()
            .and_then(|call| self.cache.code.blocks.get(call.index()));
        Ok(call.ok_or(Error::NoCall)?.end)
    }

    /// Returns the next outcome.
    #[inline]
    fn next_outcome(&mut self) -> Result<bool, Error> {
        if self.outcomes_len == 0 {
            match self.ahead {
                Ok(TraceItem::Tnt(tnt)) => self.load_outcomes(tnt)?,
                Err(error) => return Err(error),
                _ => return Err(Error::BadQuery),
            }
        }
        self.outcomes_len -= 1;
        Ok(self.outcomes >> self.outcomes_len & 1 != 0)
    }

    /// Returns the next target.
    fn next_target(&mut self) -> Result<u64, Error> {
        // The target may come after outcomes of later branches.
        if let Ok(TraceItem::Tnt(tnt)) = self.ahead {
            self.load_outcomes(tnt)?;
        }
        match self.ahead {
            Ok(TraceItem::Tip(ip)) => {
                self.emit_packet_time();
                self.passed_psb = None;
                self.read_ahead();
                ip.ok_or(Error::NoIp)
            }
            Err(error) => Err(error),
            _ => Err(Error::BadQuery),
        }
    }

    /// Appends the next outcomes of the trace to the unused ones.
    fn load_outcomes(&mut self, tnt: Tnt) -> Result<(), Error> {
        let len = u32::from(tnt.len());
        if self.outcomes_len == 0 {
            self.emit_packet_time();
        } else if self.outcomes_len + len > 64 {
            return Err(Error::TooManyOutcomes);
        }
        self.outcomes = self.outcomes << len | tnt.bits();
        self.outcomes_len += len;
        self.passed_psb = None;
        self.read_ahead();
        Ok(())
    }

    /// Reports the time at the next packet.
    #[inline]
    pub(in crate::engine::native::flow) fn emit_packet_time(&mut self) {
        if self.pending.is_none() {
            self.emit_time(self.events.time());
        }
    }
}

/// The successor of a block.
enum Successor {
    /// The next block in memory.
    FallThrough,
    /// The target of its branch.
    Taken,
    /// The target in the trace.
    Indirect,
}
