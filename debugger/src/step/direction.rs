//! The direction of a motion.

/// The direction of a motion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As the program ran.
    Forward,
    /// Toward the past.
    Backward,
}
