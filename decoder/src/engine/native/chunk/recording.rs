//! A chunk in the making.

use super::{Chunk, Start, Way};
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
    start: Start,
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

    pub fn begin(&mut self, start: Start, raw: &Raw<'_>) {
        self.begun = Some(Begun {
            start,
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
    pub fn chunk(&mut self, chunk: &Chunk, calls: &[Call]) {
        if !self.is_on() {
            return;
        }
        self.runs.push(chunk.way.run);
        self.ip_matters |= chunk.ip_matters;
        self.deepen(chunk.deepest);
        for &call in chunk.returned(calls) {
            self.returned_from(call);
        }
        self.opened.extend(chunk.opened(calls));
    }

    /// Bytes of packets read since its beginning.
    #[inline]
    pub fn len(&self, raw: &Raw<'_>) -> usize {
        let begun = self.begun.as_ref();
        begun.map_or(0, |begun| raw.offset - begun.offset)
    }

    /// Ends before the block `next`; `None`: it is not worth one.
    pub fn end(
        &mut self,
        raw: &Raw<'_>,
        next: u32,
        code: &mut CodeCache,
        calls: &mut Vec<Call>,
    ) -> Option<Chunk> {
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
        let chunk = Chunk {
            start: begun.start,
            way: Way {
                run: code.run_of(&self.parts)?,
                next,
            },
            ip_before: begun.ip,
            ip_after: raw.ip(),
            ip_matters: self.ip_matters,
            offset: begun.offset,
            len: u8::try_from(raw.offset - begun.offset).ok()?,
            deepest: u8::try_from(self.deepest).ok()?,
            first_call: u32::try_from(calls.len()).ok()?,
            returned: u8::try_from(self.returned.len()).ok()?,
            opened: u8::try_from(self.opened.len()).ok()?,
        };
        calls.extend_from_slice(&self.returned);
        calls.extend_from_slice(&self.opened);
        Some(chunk)
    }
}
