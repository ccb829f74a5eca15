//! The errors of a parallel decode.

/// The reason why a parallel decode has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParallelError {
    /// The caller canceled it.
    Canceled,
    /// A segment does not continue the one before it.
    Discontinuous,
}
