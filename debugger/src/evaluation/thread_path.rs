//! The instructions that a thread executed, for the replay of its values.

use crate::replay::ExecutedPath;
use crate::session::{CodeMode, PositionCount, Process, Session, Thread};
use backtrail_decoder::{History, Image, Position, Version};
use backtrail_pt::Avma;
use iced_x86::Instruction;

/// The instructions that a thread executed, with their code. Several threads may read it at once.
#[derive(Clone, Copy)]
pub(crate) struct ThreadPath<'a> {
    history: &'a History,
    image: &'a Image,
    mode: CodeMode,
    positions: PositionCount,
}

impl<'a> ThreadPath<'a> {
    /// Returns the path of a thread of a process.
    pub fn new(process: &'a Process, thread: &'a Thread) -> Self {
        Self {
            history: &thread.history,
            image: &process.image,
            mode: process.mode,
            positions: thread.positions(),
        }
    }

    /// Returns the path of a thread. `None`: its process is unknown.
    pub fn of(session: &'a Session, thread: &'a Thread) -> Option<Self> {
        Some(Self::new(session.process(thread)?, thread))
    }
}

impl ExecutedPath for ThreadPath<'_> {
    fn history(&self) -> &History {
        self.history
    }

    fn decode(&self, version: Version, pc: Avma, len: u8) -> Option<Instruction> {
        self.mode.decoded_at(self.image, version, pc, len)
    }

    fn position(&self, index: u64) -> Position {
        self.positions.position(index)
    }
}
