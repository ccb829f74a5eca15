//! The results of `bench record`.

use crate::Failure;
use backtrail_tests::real::RealProgram;

/// The measurements of one program.
pub struct Row {
    pub program: &'static RealProgram,
    /// Seconds without the recorder.
    pub native: f64,
    pub ring: Result<Cost, Failure>,
    pub full: Result<Cost, Failure>,
    /// Seconds under each peer, in the peers' order.
    pub peers: Vec<Result<f64, Failure>>,
}

/// The cost of a recording.
pub struct Cost {
    /// Seconds of the whole command, including encoding and writing the bundle.
    pub seconds: f64,
    /// PT bytes written, including those that the ring dropped.
    pub bytes: u64,
    /// PT bits per kept instruction; `None` if the bundle was not decoded.
    pub bits: Option<f64>,
    /// Gaps that the recorder reports, plus gaps and errors of a decode.
    pub gaps: u64,
}
