//! The instructions that a thread executed, for the replay of its values.

use crate::replay::ExecutedPath;
use crate::session::{Process, Session, Thread};
use backtrail_decoder::{History, Position, Version};
use backtrail_pt::Avma;
use iced_x86::Instruction;

/// The instructions that a thread executed, with their code.
#[derive(Clone, Copy)]
pub(crate) struct ThreadPath<'a> {
    pub process: &'a Process,
    pub thread: &'a Thread,
}

impl<'a> ThreadPath<'a> {
    /// Returns the path of a thread. `None`: its process is unknown.
    pub fn of(session: &'a Session, thread: &'a Thread) -> Option<Self> {
        let process = session.process(thread)?;
        Some(Self { process, thread })
    }
}

impl ExecutedPath for ThreadPath<'_> {
    fn history(&self) -> &History {
        &self.thread.history
    }

    fn decode(&self, version: Version, pc: Avma, len: u8) -> Option<Instruction> {
        self.process.decoded_at(version, pc, len)
    }

    fn position(&self, index: u64) -> Position {
        self.thread.position(index)
    }
}
