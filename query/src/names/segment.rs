//! The stacks of a segment, and the names on them.

use super::lists::Lists;
use super::texts::{TextIdx, Texts};
use datafusion::execution::memory_pool::MemoryReservation;
use regex::Regex;

/// The index of a frame in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameIdx(pub(crate) u32);

/// The stacks of a segment, and the names on them.
#[derive(Debug)]
pub(crate) struct SegmentNames {
    /// The frames of each stack, the innermost first.
    pub(super) stacks: Lists,
    /// The names of each frame's functions, the innermost first.
    pub(super) functions: Lists,
    /// The module of each frame.
    pub(super) modules: Vec<Option<TextIdx>>,
    /// The texts.
    pub(super) texts: Texts,
    /// The memory, which is free again with the value.
    pub(super) _memory: MemoryReservation,
}

impl SegmentNames {
    /// Returns the frames of a stack, the innermost first. `None`: there is no such stack.
    pub(crate) fn frames(&self, stack: u32) -> Option<impl DoubleEndedIterator<Item = FrameIdx>> {
        Some(self.stacks.get(stack)?.iter().map(|frame| FrameIdx(*frame)))
    }

    /// Returns the names of a frame's functions, the innermost first. A frame has at least one.
    pub(crate) fn functions(&self, frame: FrameIdx) -> impl DoubleEndedIterator<Item = &str> {
        let functions = self.functions.get(frame.0).unwrap_or(&[]);
        functions.iter().map(|text| self.texts.get(TextIdx(*text)))
    }

    /// Returns the names on a stack, the innermost first. `None`: there is no such stack.
    pub(crate) fn names(&self, stack: u32) -> Option<impl DoubleEndedIterator<Item = &str>> {
        Some(self.frames(stack)?.flat_map(|frame| self.functions(frame)))
    }

    /// Returns whether each stack has a function or module that matches.
    pub(crate) fn matches(&self, pattern: &Regex) -> Vec<bool> {
        let texts = self.texts.matches(pattern);
        let is_match = |text: u32| usize::try_from(text).ok().and_then(|text| texts.get(text)) == Some(&true);
        let frames = (0u32..).zip(&self.modules).map(|(frame, module)| {
            let functions = self.functions.get(frame).unwrap_or(&[]);
            functions.iter().any(|text| is_match(*text)) || module.is_some_and(|module| is_match(module.0))
        });
        let frames: Vec<bool> = frames.collect();
        let frame =
            |frame: &u32| usize::try_from(*frame).ok().and_then(|frame| frames.get(frame)) == Some(&true);
        (0u32..)
            .map_while(|stack| self.stacks.get(stack))
            .map(|stack| stack.iter().any(frame))
            .collect()
    }
}
