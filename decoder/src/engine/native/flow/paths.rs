//! The fast way: outcomes by the packet and targets straight from the bytes, while nothing else is between.

use super::{Flow, Stop};
use crate::Event as Told;
use crate::engine::native::code::{Block, Exit};
use crate::engine::native::did::{Did, What};
use crate::engine::native::error::Error;
use crate::engine::native::event::Item;
use crate::engine::native::memo::{End, OUTCOMES, Step, Symbol};
use crate::engine::native::raw::{Branch, Raw};
use crate::engine::native::returns::ANY;
use backtrail_pt::Avma;

impl<'b> Flow<'_, 'b> {
    /// Goes on from the block with number `at` by packets that tell of branches, until another is next or
    /// something needs a closer look. Gives the block that is next, or [`Block::NONE`], where it is to be
    /// found by its address; `None`: nothing was gone.
    pub(super) fn run_paths(&mut self, mut at: u32) -> Result<Option<u32>, Stop> {
        let branch = matches!(self.ahead, Ok(Item::Tnt(_) | Item::Tip(_)));
        if !branch || self.outcomes_len != 0 || self.time_is_new() {
            return Ok(None);
        }
        let Some(mut raw) = self.events.raw() else {
            return Ok(None);
        };
        let (mut bits, mut len) = (0, 0);
        // Where the packet begins of which no outcome is used yet.
        let mut whole = None;
        let mut moved = false;
        // The time is another since the last packet of a branch, and is to be told behind the next branch.
        let mut late = false;
        while at != Block::NONE && self.until_progress > 1 {
            if len == 0 {
                self.learnt.chunks.boundary(&raw, at, &mut self.learnt.code);
                if !late {
                    let offset = raw.offset;
                    at = self.leap(at, &mut raw);
                    if raw.offset != offset {
                        (moved, whole) = (true, None);
                        continue;
                    }
                }
                let before = raw;
                match raw.next() {
                    None if moved && self.events.take_time(&mut raw) => {
                        self.trail.push(before.offset, at, 0, Did::OTHER);
                        // No chunk passes over a packet of the time, which may stand behind padding.
                        self.learnt.chunks.abandon();
                        late = self.time_is_new();
                        continue;
                    }
                    None if moved && !late && self.pass_header(&mut raw, &mut at) => {
                        self.trail.push(before.offset, at, 0, Did::OTHER);
                        continue;
                    }
                    None => break,
                    Some(Branch::Outcomes(outcomes, count)) => {
                        (bits, len, whole) = (outcomes, count, Some(before));
                    }
                    Some(Branch::Target(ip, told)) => {
                        let Some(step) =
                            self.learnt
                                .memo
                                .step(at, Symbol::TARGET, &mut self.learnt.code, self.memory)
                        else {
                            raw = before;
                            break;
                        };
                        self.take(&step);
                        let effect = step.effect();
                        let did = match late {
                            true => Did::OTHER,
                            false => Did::new(What::Target { effect }),
                        };
                        self.trail.push(before.offset, at, step.run, did);
                        self.learnt.chunks.target(told);
                        moved = true;
                        self.ip = ip;
                        if !late || self.tell_late(&mut late) {
                            at = self.target_block(ip);
                        } else {
                            at = Block::NONE;
                        }
                    }
                }
                continue;
            }
            let count = if late { 1 } else { len.min(OUTCOMES) };
            let chosen = bits >> (len - count) & ((1 << count) - 1);
            let symbol = Symbol::outcomes(chosen, count);
            let Some(step) = self
                .learnt
                .memo
                .step(at, symbol, &mut self.learnt.code, self.memory)
            else {
                break;
            };
            self.take(&step);
            if let Some(before) = whole.take() {
                let all = step.used() == len && step.end() == End::Block && !late;
                let effect = step.effect();
                let did = match all {
                    true => Did::new(What::Outcomes { effect }),
                    false => Did::OTHER,
                };
                self.trail.push(before.offset, at, step.run, did);
            }
            moved = true;
            len -= step.used();
            at = step.next;
            if step.end() == End::Return {
                let Some(call) = self.returns.pop() else {
                    self.learnt.chunks.abandon();
                    self.trail.push(raw.offset, at, 0, Did::OTHER);
                    self.leave_paths(raw, bits, len);
                    return Err(Stop::Error(Error::NoCall, self.learnt.code.last_of(step.run)));
                };
                self.learnt.chunks.returned_from(call);
                at = self.block_behind(call);
            }
            if late {
                self.ip = self
                    .learnt
                    .code
                    .blocks
                    .get(at as usize)
                    .map_or(self.ip, |block| block.start);
                if !self.tell_late(&mut late) {
                    at = Block::NONE;
                }
            }
        }
        self.learnt.chunks.abandon();
        if !moved {
            return Ok(None);
        }
        if let Some(before) = whole.filter(|_| len > 0) {
            (raw, len) = (before, 0);
        }
        self.trail.push(raw.offset, at, 0, Did::OTHER);
        if let Some(block) = self.learnt.code.blocks.get(at as usize) {
            self.ip = block.start;
        }
        self.quiet.branched();
        self.leave_paths(raw, bits, len);
        Ok(Some(at))
    }

    /// Passes a PSB+ before the block with number `at`, if it says nothing new but the time. Says whether it did.
    fn pass_header(&mut self, raw: &mut Raw<'b>, at: &mut u32) -> bool {
        let Some(&Block { start, .. }) = self.learnt.code.blocks.get(*at as usize) else {
            return false;
        };
        let psb = raw.offset;
        let bounds = &self.bounds;
        if bounds.is_muted()
            || self
                .events
                .pass_header(raw, start, |psb| bounds.are_at(psb))
                .is_none()
        {
            return false;
        }
        self.learnt.chunks.abandon();
        self.ip = start;
        self.quiet.pass_psb(psb);
        let changes = self.changes;
        self.tell_time(self.events.when());
        self.tell(Told::Enabled {
            at: Avma(start),
            status: true,
        });
        if self.changes != changes {
            *at = Block::NONE;
        }
        true
    }

    /// Tells the time that has become another. Says whether the code is the same afterwards.
    fn tell_late(&mut self, late: &mut bool) -> bool {
        *late = false;
        let changes = self.changes;
        self.tell_time(self.events.when());
        changes == self.changes
    }

    /// The blocks of a step have run.
    #[inline]
    fn take(&mut self, step: &Step) {
        self.push_run(step.run);
        let Some(effect) = self.learnt.memo.effect(step.effect()) else {
            return self.learnt.chunks.step(step.run, &[], 0);
        };
        self.learnt.memo.apply(effect, &mut self.returns);
        let calls = self.learnt.memo.calls(effect);
        self.learnt.chunks.step(step.run, calls, effect.deepest);
        if effect.returns {
            self.learnt.chunks.returned_from(ANY);
        }
    }

    #[inline]
    pub(super) fn push_run(&mut self, run: u32) {
        self.batch.push(run);
        self.until_progress -= 1;
    }

    /// Reads on as usual, behind what was read here.
    fn leave_paths(&mut self, raw: Raw<'b>, outcomes: u64, len: u32) {
        (self.outcomes, self.outcomes_len) = (outcomes, len);
        self.events.resume(raw);
        self.ahead = self.events.next();
    }

    /// The block that a call, by the number of the block that ends in it, returns to.
    #[inline]
    fn block_behind(&mut self, call: u32) -> u32 {
        let Some(from) = self.learnt.code.blocks.get(call as usize) else {
            return Block::NONE;
        };
        self.ip = from.end;
        if let Some(next) = self.learnt.code.blocks.get(from.next as usize)
            && next.exit != Exit::Gone
        {
            return from.next;
        }
        let Ok(next) = self.find(self.ip) else {
            return Block::NONE;
        };
        if let Some(from) = self.learnt.code.blocks.get_mut(call as usize) {
            from.next = next;
        }
        next
    }

    /// The block at a target.
    #[inline]
    fn target_block(&mut self, ip: u64) -> u32 {
        self.learnt.code.at_target(ip, self.memory).unwrap_or(Block::NONE)
    }
}
