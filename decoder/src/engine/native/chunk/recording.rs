//! A chunk in the making.

use super::{Chunk, Effects, Gone, Ip, Place, Start, Way};
use crate::engine::native::code::CodeCache;
use crate::engine::native::did::{Did, What};
use crate::engine::native::raw::{LowBits, Raw};

#[derive(Clone, Default)]
pub(super) struct Recording {
    /// Where it began; `None`: none is made.
    begun: Option<Begun>,
    /// Of the last IP before it, what the first target replaced; `None`: there is none.
    told: Option<LowBits>,
    deepest: usize,
    runs: Vec<u32>,
    /// The calls that it leaves open, the innermost last, and those that it returns from, the innermost first.
    opened: Vec<u32>,
    returned: Vec<u32>,
    parts: Vec<u32>,
}

#[derive(Clone)]
struct Begun {
    place: Place,
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

    /// Begins before a block.
    pub fn begin(&mut self, place: Place, raw: &Raw<'_>) {
        self.begun = Some(Begun {
            place,
            offset: raw.offset,
            ip: raw.ip(),
        });
        (self.told, self.deepest) = (None, 0);
        self.runs.clear();
        self.opened.clear();
        self.returned.clear();
    }

    #[inline]
    pub fn abandon(&mut self) {
        self.begun = None;
    }

    #[inline]
    pub fn step(&mut self, run: u32, opened: &[u32], deepest: u8) {
        if self.is_on() {
            self.runs.push(run);
            self.deepen(deepest);
            self.opened.extend_from_slice(opened);
        }
    }

    /// So many calls more than now were open.
    #[inline]
    fn deepen(&mut self, more: u8) {
        let open = (self.opened.len() + usize::from(more)).saturating_sub(self.returned.len());
        self.deepest = self.deepest.max(open);
    }

    #[inline]
    pub fn returned_from(&mut self, call: u32) {
        if self.is_on() && self.opened.pop().is_none() {
            self.returned.push(call);
        }
    }

    #[inline]
    pub fn target(&mut self, told: LowBits) {
        self.told.get_or_insert(told);
    }

    /// A chunk was gone.
    pub fn chunk(&mut self, gone: &Gone, effects: &Effects) {
        let Some(effect) = effects.of(gone.did).filter(|_| self.is_on()) else {
            return;
        };
        self.runs.push(gone.way.run);
        self.deepen(gone.did.deepest());
        if effect.ip_changes {
            self.target(effect.told);
        }
        for &call in effects.returned(effect).iter().rev() {
            self.returned_from(call);
        }
        self.opened.extend_from_slice(effects.opened(effect));
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
        self.returned.reverse();
        let ip = self.told.map(|told| Ip {
            above: told.above(begun.ip),
            told,
            after: raw.ip(),
        });
        let did = Did::new(What::Chunk {
            effect: effects.push(ip, &self.returned, &self.opened)?,
            deepest: u8::try_from(self.deepest).ok()?,
        });
        if did == Did::OTHER {
            return None;
        }
        Some(Chunk {
            start: Start {
                window: *raw.window_at(begun.offset)?,
                place: begun.place,
            },
            gone: Gone {
                way: Way {
                    run: code.run_of(&self.parts)?,
                    next,
                },
                did,
                len: u8::try_from(raw.offset - begun.offset).ok()?,
            },
        })
    }
}
