//! The numbers by which a client names frames and what can be opened; they are good until the next
//! move.

use crate::failure::{Failure, Result};
use backtrail_debugger::evaluation::variables::Node;
use backtrail_decoder::Position;

/// A frame of a thread's stack at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKey {
    /// Where.
    pub position: Position,
    /// 0 is the innermost.
    pub number: usize,
}

impl FrameKey {
    /// The number of what the stack has to say between its frames: it has no values.
    pub const NONE: usize = usize::MAX;
}

/// The containers that a client can open.
#[derive(Clone, Debug)]
pub enum Container {
    /// The arguments of a frame.
    Arguments(FrameKey),
    /// Its other variables.
    Locals(FrameKey),
    /// Its registers.
    Registers(FrameKey),
    /// The scope with data of the trace about the position.
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
    /// Number 1 first; these stay good.
    targets: Vec<Position>,
}

/// No more numbers are given out between two moves.
const MOST: i64 = 1 << 20;
/// No more places to go to are known by a number.
const MOST_TARGETS: usize = 1 << 14;
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
    ///
    /// # Errors
    /// When too many were given out.
    pub fn frame(&mut self, frame: FrameKey) -> Result<i64> {
        let known = self.frames.iter().position(|known| *known == frame);
        let at = known.unwrap_or(self.frames.len());
        let number = self.number(at)?;
        if known.is_none() {
            self.frames.push(frame);
        }
        Ok(number)
    }

    /// A number for something that can be opened.
    ///
    /// # Errors
    /// When too many were given out.
    pub fn container(&mut self, container: Container) -> Result<i64> {
        let number = self.number(self.containers.len())?;
        self.containers.push(container);
        Ok(number)
    }

    /// A number for a place to go to.
    ///
    /// # Errors
    /// When too many were given out.
    pub fn target(&mut self, position: Position) -> Result<i64> {
        let known = self.targets.iter().position(|known| *known == position);
        let at = known.unwrap_or(self.targets.len());
        if at >= MOST_TARGETS {
            return Err(too_many());
        }
        if known.is_none() {
            self.targets.push(position);
        }
        Ok(at as i64 + 1)
    }

    /// The place of a number.
    ///
    /// # Errors
    /// When it never was one.
    pub fn target_of(&self, number: i64) -> Result<Position> {
        let at = number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.targets.get(at))
            .copied()
            .ok_or_else(|| Failure::Cannot("unknown target; request `gotoTargets` again".to_owned()))
    }

    /// The frame of a number.
    ///
    /// # Errors
    /// When it is of an earlier stop, or never was one.
    pub fn frame_of(&self, number: i64) -> Result<FrameKey> {
        let found = self.index(number).and_then(|at| self.frames.get(at));
        found.copied().ok_or(Failure::Stale)
    }

    /// Returns the container of a number.
    ///
    /// # Errors
    ///
    /// If the number is unknown or from an earlier stop.
    pub fn container_of(&self, number: i64) -> Result<&Container> {
        let found = self.index(number).and_then(|at| self.containers.get(at));
        found.ok_or(Failure::Stale)
    }

    fn number(&self, at: usize) -> Result<i64> {
        let within = i64::try_from(at).ok().filter(|at| *at < MOST - 1);
        let within = within.ok_or_else(too_many)?;
        Ok(self.epoch * MOST + within + 1)
    }

    fn index(&self, number: i64) -> Option<usize> {
        let at = number.checked_sub(1 + self.epoch * MOST)?;
        usize::try_from(at).ok().filter(|&at| (at as i64) < MOST)
    }
}

fn too_many() -> Failure {
    Failure::Cannot("too many frames and values were requested at this stop; move and try again".to_owned())
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
        let (one, two) = (handles.frame(frame(0)).unwrap(), handles.frame(frame(1)).unwrap());
        assert!(one > 0 && one != two);
        assert_eq!(handles.frame(frame(0)).unwrap(), one);
        assert_eq!(handles.frame_of(two).unwrap(), frame(1));
        let opened = handles.container(Container::Locals(frame(0))).unwrap();
        let target = handles.target(Position::new(Tid(1), 9)).unwrap();
        assert_eq!(handles.target_of(target).unwrap(), Position::new(Tid(1), 9));
        assert!(matches!(handles.container_of(opened), Ok(Container::Locals(_))));
        for _ in 0..5000 {
            handles.forget();
            assert!(handles.frame_of(one).is_err() && handles.container_of(opened).is_err());
            assert!(handles.target_of(target).is_ok());
            let fresh = handles.frame(frame(2)).unwrap();
            assert!((1..1 << 31).contains(&fresh) && fresh != one);
            if handles.epoch == EPOCHS - 1 {
                break;
            }
        }
        for wrong in [0, -1, i64::MAX, i64::MIN + 1] {
            assert!(handles.frame_of(wrong).is_err());
        }
    }

    #[test]
    fn no_number_is_given_out_twice() {
        let mut handles = Handles::default();
        assert_eq!(handles.number(0).unwrap(), 1);
        let last = MOST as usize - 2;
        assert_eq!(handles.number(last).unwrap(), MOST - 1);
        assert!(handles.number(last + 1).is_err());
        handles.forget();
        assert_eq!(handles.number(0).unwrap(), MOST + 1);
    }
}
