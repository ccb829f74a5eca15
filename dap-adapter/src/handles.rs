//! The numbers by which a client names frames and what can be opened; they are good until the next move.

use crate::failure::{Failure, Result};
use backtrail_debugger::values::tree::Node;
use backtrail_decoder::Position;

/// A frame of a thread's stack at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKey {
    /// Where.
    pub position: Position,
    /// 0 is the innermost.
    pub number: usize,
}

/// What can be opened.
#[derive(Clone, Debug)]
pub enum Container {
    /// The arguments of a frame.
    Arguments(FrameKey),
    /// Its other variables.
    Locals(FrameKey),
    /// Its registers.
    Registers(FrameKey),
    /// What the trace knows of the place.
    Trace(FrameKey),
    /// A value that has parts.
    Parts(FrameKey, Box<Node>),
}

/// The numbers that were given out since the last move.
#[derive(Debug, Default)]
pub struct Handles {
    epoch: i64,
    frames: Vec<FrameKey>,
    containers: Vec<Container>,
}

/// No more numbers are given out between two moves.
const MOST: i64 = 1 << 20;
/// Numbers are of 31 bits.
const EPOCHS: i64 = (1 << 11) - 1;

impl Handles {
    /// All that were given out are of an earlier stop now.
    pub fn forget(&mut self) {
        self.epoch = (self.epoch + 1) % EPOCHS;
        self.frames.clear();
        self.containers.clear();
    }

    /// A number for a frame.
    pub fn frame(&mut self, frame: FrameKey) -> i64 {
        if let Some(known) = self.frames.iter().position(|known| *known == frame) {
            return self.number(known);
        }
        self.frames.push(frame);
        self.number(self.frames.len() - 1)
    }

    /// A number for something that can be opened.
    pub fn container(&mut self, container: Container) -> i64 {
        self.containers.push(container);
        self.number(self.containers.len() - 1)
    }

    /// The frame of a number.
    ///
    /// # Errors
    /// When it is of an earlier stop, or never was one.
    pub fn frame_of(&self, number: i64) -> Result<FrameKey> {
        let found = self.index(number).and_then(|at| self.frames.get(at));
        found.copied().ok_or(Failure::Stale)
    }

    /// What a number opens.
    ///
    /// # Errors
    /// When it is of an earlier stop, or never was one.
    pub fn container_of(&self, number: i64) -> Result<&Container> {
        let found = self.index(number).and_then(|at| self.containers.get(at));
        found.ok_or(Failure::Stale)
    }

    fn number(&self, at: usize) -> i64 {
        self.epoch * MOST + (at as i64).min(MOST - 2) + 1
    }

    fn index(&self, number: i64) -> Option<usize> {
        let at = number.checked_sub(1 + self.epoch * MOST)?;
        usize::try_from(at).ok().filter(|&at| (at as i64) < MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Tid;

    #[test]
    fn numbers_are_good_until_the_next_move() {
        let mut handles = Handles::default();
        let frame = |number| FrameKey {
            position: Position::new(Tid(1), 7),
            number,
        };
        let (one, two) = (handles.frame(frame(0)), handles.frame(frame(1)));
        assert!(one > 0 && one != two);
        assert_eq!(handles.frame(frame(0)), one);
        assert_eq!(handles.frame_of(two).unwrap(), frame(1));
        let opened = handles.container(Container::Locals(frame(0)));
        assert!(matches!(handles.container_of(opened), Ok(Container::Locals(_))));
        for _ in 0..5000 {
            handles.forget();
            assert!(handles.frame_of(one).is_err() && handles.container_of(opened).is_err());
            let fresh = handles.frame(frame(2));
            assert!((1..1 << 31).contains(&fresh) && fresh != one);
            if handles.epoch == EPOCHS - 1 {
                break;
            }
        }
        for wrong in [0, -1, i64::MAX, i64::MIN + 1] {
            assert!(handles.frame_of(wrong).is_err());
        }
    }
}
