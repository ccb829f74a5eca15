//! Places that paths jump to indirectly, and that no open call may return to then: the jump would be a return.

use crate::forest::stack::NONE;

/// Which paths jump to a place that no call is known to return to.
#[derive(Default)]
pub(super) struct Unexpected {
    /// The number of the last jump to a place, by the place's number; [`NONE`].
    last: Vec<u32>,
    jumps: Vec<Jump>,
}

/// One of them.
struct Jump {
    path: u32,
    /// The number of the one before to the same place; [`NONE`].
    before: u32,
}

impl Unexpected {
    /// A path jumps to a place.
    pub fn add(&mut self, path: u32, place: u32) -> Option<()> {
        let (number, at) = (u32::try_from(self.jumps.len()).ok()?, place as usize);
        if self.last.len() <= at {
            self.last.resize(at + 1, NONE);
        }
        let before = std::mem::replace(self.last.get_mut(at)?, number);
        self.jumps.push(Jump { path, before });
        Some(())
    }

    /// The paths that jump to a place, which some call returns to from now on; some may come more than once.
    pub fn take(&mut self, place: u32) -> impl Iterator<Item = u32> {
        let last = self.last.get_mut(place as usize);
        let mut next = last.map_or(NONE, |last| std::mem::replace(last, NONE));
        std::iter::from_fn(move || {
            let jump = self.jumps.get(next as usize)?;
            next = jump.before;
            Some(jump.path)
        })
    }
}
