//! Watches sites that paths jump to indirectly. If an open call returns to the site, the jump
//! counts as a return.

use crate::PathIdx;
use crate::forest::code_sites::SiteIdx;
use crate::forest::stack::NONE;

/// The paths that jump to a site that no known call returns to.
#[derive(Default)]
pub(super) struct JumpWatch {
    /// The last jump to each site, by site; [`NONE`] if there is none.
    last: Vec<u32>,
    jumps: Vec<WatchedJump>,
}

/// A jump of a path.
struct WatchedJump {
    path: PathIdx,
    /// The previous jump to the same site; [`NONE`] if there is none.
    before: u32,
}

impl JumpWatch {
    /// Adds a jump of a path to a site.
    pub fn add(&mut self, path: PathIdx, site: SiteIdx) -> Option<()> {
        let (number, at) = (u32::try_from(self.jumps.len()).ok()?, site.index());
        if self.last.len() <= at {
            self.last.resize(at + 1, NONE);
        }
        let before = std::mem::replace(self.last.get_mut(at)?, number);
        self.jumps.push(WatchedJump { path, before });
        Some(())
    }

    /// Removes and returns the paths that jump to a site, because a call returns to it now. Some
    /// may appear more than once.
    pub fn take(&mut self, site: SiteIdx) -> impl Iterator<Item = PathIdx> {
        let last = self.last.get_mut(site.index());
        let mut next = last.map_or(NONE, |last| std::mem::replace(last, NONE));
        std::iter::from_fn(move || {
            let jump = self.jumps.get(next as usize)?;
            next = jump.before;
            Some(jump.path)
        })
    }
}
