//! Memory for calls, made ready beside who finds them.

use super::{Batch, Nodes};
use crate::pile::Store;
use std::sync::Arc;

/// Memory for calls, which may be made ready by another thread than the one that finds them.
#[derive(Debug, Default)]
pub(crate) struct Room {
    batches: Arc<Store<Batch>>,
    words: Arc<Store<u32>>,
}

impl Room {
    /// Less lies ready than may.
    pub fn wants(&self) -> bool {
        self.batches.wants() || self.words.wants()
    }

    /// Makes some more ready.
    pub fn fill(&self) {
        if self.batches.wants() {
            self.batches.fill();
        } else {
            self.words.fill();
        }
    }
}

impl Nodes {
    /// Takes memory from there.
    pub fn draw_from(&mut self, room: &Room) {
        self.batches.draw_from(Arc::clone(&room.batches));
        self.words.draw_from(Arc::clone(&room.words));
    }
}
