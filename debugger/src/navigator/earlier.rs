//! Going on where more history has to be decoded first.

use super::Navigator;
use crate::breakpoint::Breakpoints;
use crate::error::{Error, Result};
use crate::session::Session;
use backtrail_decoder::{Position, Watch};
use backtrail_pt::Tid;
use std::collections::BTreeMap;

/// The state of a navigator that a command may change before it fails for missing history.
struct SavedState {
    current: Tid,
    positions: BTreeMap<Tid, u64>,
    frame: usize,
    undone: Vec<Position>,
    done: Vec<Position>,
    breakpoints: Breakpoints,
    bookmarks: BTreeMap<String, Position>,
    listed: Option<(String, u32)>,
}

impl Navigator {
    /// Runs `act`. If that needs history that is not decoded yet, decodes all, and runs `act`
    /// again.
    ///
    /// # Errors
    /// The errors of `act`. Also when canceled; nothing has changed then.
    pub fn with_earlier<T>(
        &mut self,
        watch: &Watch<'_>,
        mut act: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if !self.session.is_partial() {
            return act(self);
        }
        let before = self.state();
        match act(self) {
            Err(Error::Earlier) => {}
            done => return done,
        }
        self.restore(before);
        self.decode_earlier(watch)?;
        act(self)
    }

    /// Decodes what was left out at first. All stays where it is, but its index in the history.
    ///
    /// # Errors
    /// When canceled; then nothing has changed.
    pub fn decode_earlier(&mut self, watch: &Watch<'_>) -> Result<()> {
        let len = |session: &Session, tid: Tid| session.thread(tid).map_or(0, |thread| thread.history.len());
        let mut before_end = self.positions.clone();
        for (&tid, index) in &mut before_end {
            *index = len(&self.session, tid).saturating_sub(*index);
        }
        self.session.decode_earlier(watch)?;
        for (tid, before_end) in before_end {
            let index = len(&self.session, tid).saturating_sub(before_end);
            self.positions.insert(tid, index);
        }
        Ok(())
    }

    /// Begins to decode it in the background.
    pub fn decode_ahead(&mut self) {
        self.session.decode_ahead();
    }

    fn state(&self) -> SavedState {
        SavedState {
            current: self.current,
            positions: self.positions.clone(),
            frame: self.frame,
            undone: self.undone.clone(),
            done: self.done.clone(),
            breakpoints: self.breakpoints.clone(),
            bookmarks: self.bookmarks.clone(),
            listed: self.listed.clone(),
        }
    }

    fn restore(&mut self, state: SavedState) {
        self.current = state.current;
        self.positions = state.positions;
        self.frame = state.frame;
        self.undone = state.undone;
        self.done = state.done;
        self.breakpoints = state.breakpoints;
        self.bookmarks = state.bookmarks;
        self.listed = state.listed;
    }
}
