//! The options of the crash probe.

use super::{AttachKind, SignalSet};
use backtrail_pt::Pid;

/// Maximum stack bytes in an event.
pub const MAX_STACK: usize = backtrail_bpf::STACK_CHUNK * backtrail_bpf::MAX_STACK_CHUNKS;

/// The options of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The fatal signals to report.
    pub signals: SignalSet,
    /// How many stack bytes to read from the stack pointer up, at most [`MAX_STACK`].
    pub stack: usize,
    /// Bytes of the ring, rounded up to a power of two with room for a few events.
    pub ring: u32,
    /// The one kind to try. `None`: all kinds, the best first.
    pub attach: Option<AttachKind>,
    /// The one process to report. `None`: all processes.
    pub only: Option<Pid>,
    /// Processes to ignore, at most 64.
    pub excluded: Vec<Pid>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            signals: SignalSet::default(),
            stack: MAX_STACK,
            ring: 1 << 20,
            attach: None,
            only: None,
            excluded: Vec::new(),
        }
    }
}
