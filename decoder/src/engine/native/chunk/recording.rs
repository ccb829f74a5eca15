//! A chunk in the making.

use super::{Chunk, Effect, Effects, Start, Way};
use crate::engine::native::code::CodeCache;
use crate::engine::native::raw::Raw;
use crate::engine::native::returns::Call;

#[derive(Default)]
pub(super) struct Recording {
    /// Where it began; `None`: none is made.
    begun: Option<Begun>,
    ip_matters: bool,
    deepest: usize,
    runs: Vec<u32>,
    opened: Vec<Call>,
    returned: Vec<Call>,
    parts: Vec<u32>,
}

struct Begun {
    block: u32,
    epoch: u32,
    offset: usize,
    ip: u64,
}

impl Recording {
    /// Blocks of a chunk at most.
    const MAX_PARTS: usize = 1 << 10;

    #[inline]
    pub fn is_on(&self) -> bool {
        self.begun.is_some()
    }

    /// Begins before the block `block`, in the code as it is after `epoch` changes.
    pub fn begin(&mut self, block: u32, epoch: u32, raw: &Raw<'_>) {
        self.begun = Some(Begun {
            block,
            epoch,
            offset: raw.offset,
            ip: raw.ip(),
        });
        (self.ip_matters, self.deepest) = (false, 0);
        self.runs.clear();
        self.opened.clear();
        self.returned.clear();
    }

    #[inline]
    pub fn abandon(&mut self) {
        self.begun = None;
    }

    #[inline]
    pub fn step(&mut self, run: u32, opened: impl Iterator<Item = Call>, deepest: u8) {
        if self.is_on() {
            self.runs.push(run);
            self.deepen(deepest);
            self.opened.extend(opened);
        }
    }

    /// So many calls more than now were open.
    #[inline]
    fn deepen(&mut self, more: u8) {
        let open = (self.opened.len() + usize::from(more)).saturating_sub(self.returned.len());
        self.deepest = self.deepest.max(open);
    }

    #[inline]
    pub fn returned_from(&mut self, call: Call) {
        if self.is_on() && self.opened.pop().is_none() {
            self.returned.push(call);
        }
    }

    #[inline]
    pub fn target(&mut self) {
        self.ip_matters = true;
    }

    /// A chunk was gone.
    #[inline]
    pub fn chunk<const WINDOW: usize>(&mut self, chunk: &Chunk<WINDOW>, effects: &Effects) {
        if !self.is_on() {
            return;
        }
        self.runs.push(chunk.way.run);
        self.deepen(chunk.deepest);
        let Some(effect) = effects.of(chunk) else { return };
        self.ip_matters |= effect.ip_matters;
        for &call in effects.returned(effect) {
            self.returned_from(call);
        }
        self.opened.extend(effects.opened(effect));
    }

    /// Bytes of packets read since its beginning.
    #[inline]
    pub fn len(&self, raw: &Raw<'_>) -> usize {
        let begun = self.begun.as_ref();
        begun.map_or(0, |begun| raw.offset - begun.offset)
    }

    /// Ends before the block `next`; `None`: it is not worth one.
    pub fn end<const WINDOW: usize>(
        &mut self,
        raw: &Raw<'_>,
        next: u32,
        code: &mut CodeCache,
        effects: &mut Effects,
    ) -> Option<Chunk<WINDOW>> {
        let begun = self.begun.take()?;
        if self.runs.len() < 2 {
            return None;
        }
        self.parts.clear();
        let runs = code.runs();
        for &run in &self.runs {
            self.parts.extend_from_slice(runs.paths.parts(run));
        }
        if self.parts.len() > Self::MAX_PARTS {
            return None;
        }
        Some(Chunk {
            start: Start {
                window: *raw.window_at(begun.offset)?,
                block: begun.block,
                epoch: begun.epoch,
            },
            way: Way {
                run: code.run_of(&self.parts)?,
                next,
            },
            effect: self.effect(begun.ip, raw.ip(), effects)?,
            len: u8::try_from(raw.offset - begun.offset).ok()?,
            deepest: u8::try_from(self.deepest).ok()?,
        })
    }

    /// The number of what was done beside, between one last IP and another.
    fn effect(&self, ip_before: u64, ip_after: u64, effects: &mut Effects) -> Option<u32> {
        let effect = Effect {
            ip_before,
            ip_after,
            ip_matters: self.ip_matters,
            first_call: u32::try_from(effects.calls.len()).ok()?,
            returned: u8::try_from(self.returned.len()).ok()?,
            opened: u8::try_from(self.opened.len()).ok()?,
        };
        if effect.is_none() {
            return Some(Chunk::<0>::NO_EFFECT);
        }
        let number = u32::try_from(effects.all.len()).ok()?;
        effects.calls.extend_from_slice(&self.returned);
        effects.calls.extend_from_slice(&self.opened);
        effects.all.push(effect);
        Some(number)
    }
}
