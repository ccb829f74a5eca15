//! From block to block.

use super::binding::{At, Had};
use super::{Flow, PROGRESS_EVERY, Stop};
use crate::ToldReturns;
use crate::engine::native::code::{Block, Exit};
use crate::engine::native::error::Error;
use crate::engine::native::event::{Item, Kind};
use crate::engine::native::learnt::Learnt;
use backtrail_pt::packet::Tnt;
use backtrail_pt::{Avma, Cofi};
use std::convert::Infallible;

impl Flow<'_, '_> {
    /// Follows the flow until it ends.
    pub(super) fn follow(&mut self) -> Stop {
        match self.try_follow() {
            Err(stop) => stop,
            Ok(never) => match never {},
        }
    }

    fn try_follow(&mut self) -> Result<Infallible, Stop> {
        loop {
            while self.due_here()? {
                self.apply()?;
                if self.bounds.are_reached() {
                    return Err(Stop::Reached);
                }
            }
            if !self.enabled {
                let end = self.outcomes_len == 0 && matches!(self.ahead, Err(Error::End));
                return Err(if end { Error::End } else { Error::NotEnabled }.into());
            }
            if self.pending.is_some() {
                self.walk_block()?;
            } else {
                self.run_blocks()?;
            }
        }
    }

    /// The number of the block at an address.
    pub(super) fn find(&mut self, at: u64) -> Result<u32, Error> {
        if self.mode.is_none() {
            let there = self.memory.read(Avma(at), &mut [0]) > 0;
            return Err(if there { Error::NoMode } else { Error::NoCode });
        }
        self.learnt.code.at(at, self.memory)
    }

    /// Runs whole blocks until an event is next.
    fn run_blocks(&mut self) -> Result<(), Stop> {
        let mut id = Block::NONE;
        loop {
            if id == Block::NONE {
                id = self
                    .find(self.ip)
                    .map_err(|error| Stop::Error(error, Some(self.ip)))?;
            }
            let Some(&block) = self.learnt.code.blocks.get(id as usize) else {
                return Err(Error::NoCode.into());
            };
            if block.exit == Exit::Gone {
                id = Block::NONE;
                continue;
            }
            if let Some(next) = self.run_paths(id)? {
                id = next;
                if self.errata.bdm64 {
                    self.bdm64()?;
                    id = Block::NONE;
                }
                if !self.branches_are_next() {
                    return Ok(());
                }
                continue;
            }
            if self.quiet.is_long(block.exit) && self.run_straight(id) {
                id = Block::NONE;
                self.report()?;
                continue;
            }
            if self.quiet.is_overlong(&block, || self.events.offset()) {
                return Err(Stop::Overlong(block.start));
            }
            if let Some(count) = self.quiet.runs_away(block.count, block.exit) {
                return Err(self.run_away(&block, 0, count));
            }
            self.batch.push(block.run);
            let from = id;
            id = match self.leave(id, &block) {
                Ok(Way::Next) => block.next,
                Ok(Way::Taken) => block.taken,
                Ok(Way::Told) => Block::NONE,
                Err(error) => return Err(self.stuck(error, &block)),
            };
            if self.errata.bdm64 && block.exit != Exit::Through {
                let ip = self.ip;
                self.bdm64()?;
                if self.ip != ip {
                    id = Block::NONE;
                }
            }
            self.report()?;
            if !self.branches_are_next() {
                return Ok(());
            }
            if id == Block::NONE {
                self.link(from, &block)?;
            }
        }
    }

    /// Goes through blocks that no packet decides, from the block with this number on, all at once; says whether it did.
    #[cold]
    fn run_straight(&mut self, id: u32) -> bool {
        // The erratum may have each of them go elsewhere.
        if self.errata.bdm64 {
            return false;
        }
        let Learnt { straight, code, .. } = &mut self.learnt;
        let Some(way) = straight.from(id, code, self.memory) else {
            return false;
        };
        if !self.quiet.admits(way, self.events.offset()) {
            return false;
        }
        self.batch.push(way.run);
        way.calls.iter().for_each(|&call| self.returns.push(call));
        self.ip = way.end;
        true
    }

    /// No event is next.
    #[inline]
    fn branches_are_next(&self) -> bool {
        let ahead = || matches!(self.ahead, Ok(Item::Tnt(_) | Item::Tip(_)) | Err(Error::End));
        self.pending.is_none() && (self.outcomes_len != 0 || ahead())
    }

    /// The trace tells another time than was told last.
    pub(super) fn time_is_new(&self) -> bool {
        let now = self.events.when();
        now.is_some_and(|now| self.last.is_none_or(|last| now.differs_from(last)))
    }

    /// Remembers which block comes after another, where it is always the same.
    fn link(&mut self, from: u32, block: &Block) -> Result<(), Stop> {
        let next = self.ip;
        let direct = match block.exit {
            Exit::Conditional { target } | Exit::Jump { target } | Exit::Call { target }
                if target == next =>
            {
                Some(true)
            }
            Exit::Conditional { .. } | Exit::Through if next == block.end => Some(false),
            _ => None,
        };
        let Some(taken) = direct else { return Ok(()) };
        let Ok(to) = self.find(next) else {
            return Ok(());
        };
        if let Some(block) = self.learnt.code.blocks.get_mut(from as usize) {
            *(if taken { &mut block.taken } else { &mut block.next }) = to;
        }
        Ok(())
    }

    /// The flow is stuck after the last instruction of a block.
    fn stuck(&self, error: Error, block: &Block) -> Stop {
        if error == Error::End {
            return Stop::End;
        }
        let last = self.learnt.code.instruction(block, block.count.saturating_sub(1));
        Stop::Error(error, last.map(|(pc, _)| pc))
    }

    /// The code runs on without a packet, for `count` instructions of a block from number `from` on.
    fn run_away(&mut self, block: &Block, from: u32, count: u32) -> Stop {
        self.emit(block, from, from + count);
        let last = self.learnt.code.instruction(block, from + count - 1);
        Stop::RunAway(last.map_or(block.start, |(pc, _)| pc))
    }

    /// A block was gone through: now and then the sink is told how far it is.
    pub(super) fn report(&mut self) -> Result<(), Stop> {
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

    /// The instructions `from..to` of a block have run.
    pub(super) fn emit(&mut self, block: &Block, from: u32, to: u32) {
        if from < to
            && let Some(run) = self.learnt.code.part(block, from, to)
        {
            self.batch.push(run);
        }
    }

    /// Goes over the instructions of a block one by one, to where the event that is pending is due.
    fn walk_block(&mut self) -> Result<(), Stop> {
        let ip = self.ip;
        let stuck = |error| Stop::Error(error, Some(ip));
        let id = self.find(ip).map_err(stuck)?;
        let block = *self
            .learnt
            .code
            .blocks
            .get(id as usize)
            .ok_or(stuck(Error::NoCode))?;
        if self.quiet.is_overlong(&block, || self.events.offset()) {
            return Err(Stop::Overlong(block.start));
        }
        let mut begun = 0;
        for within in 0..block.count {
            let Some((pc, code)) = self.learnt.code.instruction(&block, within) else {
                break;
            };
            self.ip = pc;
            if within > 0 && self.due_here()? {
                self.emit(&block, begun, within);
                return Ok(());
            }
            let last = within + 1 == block.count;
            let exit = if last { block.exit } else { Exit::Through };
            if self.quiet.runs_away(1, exit).is_some() {
                return Err(self.run_away(&block, begun, within + 1 - begun));
            }
            let at = At {
                pc,
                len: code.len,
                cofi: code.cofi,
            };
            let mut had = Had::default();
            while self.fetch_event_of(&block, &mut begun, within)? && self.due_with(at, &mut had) {
                self.emit(&block, begun, within + 1);
                begun = within + 1;
                self.ip = self.address_after(&block, at);
                self.apply()?;
                if !self.enabled {
                    if at.cofi == Cofi::Return {
                        self.return_told();
                    }
                    return Ok(());
                }
                self.ip = pc;
            }
        }
        self.emit(&block, begun, block.count);
        self.leave(id, &block)
            .map_err(|error| self.stuck(error, &block))?;
        if self.errata.bdm64 && block.exit != Exit::Through {
            self.bdm64()?;
        }
        self.report()
    }

    /// [`Self::fetch_event`]; on an error the instructions up to `within` have run.
    fn fetch_event_of(&mut self, block: &Block, begun: &mut u32, within: u32) -> Result<bool, Stop> {
        let fetched = self.fetch_event();
        if fetched.is_err() {
            self.emit(block, *begun, within + 1);
            *begun = within + 1;
        }
        Ok(fetched?)
    }

    /// Where the flow stands while an event of an instruction is applied: at it, or if tracing went off
    /// with it, where it will go on, as far as that is known.
    fn address_after(&self, block: &Block, at: At) -> u64 {
        let off = self
            .pending
            .as_ref()
            .is_some_and(|event| event.kind == Kind::Disabled);
        match at.cofi {
            _ if !off => at.pc,
            Cofi::Jump { target } | Cofi::Call { target } => target.0,
            Cofi::Sequential => at.pc.wrapping_add(u64::from(at.len)),
            Cofi::IndirectCall => block.end,
            _ => 0,
        }
    }

    /// Goes from the last instruction of a block to the next.
    #[inline]
    fn leave(&mut self, id: u32, block: &Block) -> Result<Way, Error> {
        match block.exit {
            Exit::Through | Exit::Gone => {
                self.ip = block.end;
                Ok(Way::Next)
            }
            Exit::Conditional { target } => {
                if self.outcome()? {
                    self.ip = target;
                    Ok(Way::Taken)
                } else {
                    self.ip = block.end;
                    Ok(Way::Next)
                }
            }
            Exit::Jump { target } => {
                self.ip = target;
                Ok(Way::Taken)
            }
            Exit::Call { target } => {
                // A call of the next instruction reads its own address.
                if target != block.end {
                    self.returns.push(id);
                }
                self.ip = target;
                Ok(Way::Taken)
            }
            Exit::IndirectCall => {
                self.returns.push(id);
                self.ip = self.target()?;
                Ok(Way::Told)
            }
            Exit::IndirectJump | Exit::Far => {
                self.ip = self.target()?;
                Ok(Way::Told)
            }
            Exit::Return => {
                self.ip = match self.outcome() {
                    Ok(true) => self.returned()?,
                    Ok(false) => return Err(Error::BadReturn),
                    Err(_) => {
                        let to = self.target()?;
                        self.return_told();
                        to
                    }
                };
                Ok(Way::Told)
            }
        }
    }

    /// A packet tells where a return goes.
    fn return_told(&mut self) {
        if self.config.told_returns == ToldReturns::Pop {
            self.returns.pop();
        }
    }

    /// Where the innermost call returns to.
    fn returned(&mut self) -> Result<u64, Error> {
        let call = self
            .returns
            .pop()
            .and_then(|call| self.learnt.code.blocks.get(call as usize));
        Ok(call.ok_or(Error::NoCall)?.end)
    }

    /// The next outcome.
    #[inline]
    fn outcome(&mut self) -> Result<bool, Error> {
        if self.outcomes_len == 0 {
            match self.ahead {
                Ok(Item::Tnt(tnt)) => self.load(tnt)?,
                Err(error) => return Err(error),
                _ => return Err(Error::BadQuery),
            }
        }
        self.outcomes_len -= 1;
        Ok(self.outcomes >> self.outcomes_len & 1 != 0)
    }

    /// The next target.
    fn target(&mut self) -> Result<u64, Error> {
        // It may come behind outcomes of later branches.
        if let Ok(Item::Tnt(tnt)) = self.ahead {
            self.load(tnt)?;
        }
        match self.ahead {
            Ok(Item::Tip(ip)) => {
                self.tick();
                self.ahead = self.events.next();
                ip.ok_or(Error::NoIp)
            }
            Err(error) => Err(error),
            _ => Err(Error::BadQuery),
        }
    }

    /// Takes the outcomes that are next in the trace to those that wait.
    fn load(&mut self, tnt: Tnt) -> Result<(), Error> {
        let len = u32::from(tnt.len());
        if self.outcomes_len == 0 {
            self.tick();
        } else if self.outcomes_len + len > 64 {
            return Err(Error::TooManyOutcomes);
        }
        self.outcomes = self.outcomes << len | tnt.bits();
        self.outcomes_len += len;
        self.ahead = self.events.next();
        Ok(())
    }

    /// Tells the time at the packet that is next.
    #[inline]
    pub(super) fn tick(&mut self) {
        if self.pending.is_none() {
            self.tell_time(self.events.when());
        }
    }
}

/// Where a block goes on.
enum Way {
    /// Behind it.
    Next,
    /// Where its branch goes to.
    Taken,
    /// Where the trace says.
    Told,
}
