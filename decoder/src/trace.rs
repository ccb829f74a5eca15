//! The input and the output of a decode.

use crate::{AuxEnd, Bytes, CpuReport, Forest, History, Image, Switch};
use backtrail_pt::{Cpu, Tid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A buffer of PT bytes with its metadata.
#[derive(Clone)]
pub enum Input {
    /// The trace of one thread.
    Thread {
        /// The thread.
        tid: Tid,
        /// Its packets.
        trace: Bytes,
        /// The code of its process.
        image: Arc<Image>,
    },
    /// The trace of one processor, which ran any threads.
    Cpu {
        /// The processor.
        cpu: Cpu,
        /// Its packets.
        trace: Bytes,
        /// Its context switches, in order.
        switches: Vec<Switch>,
        /// The ends of its pieces, if they were recorded.
        aux_ends: Vec<AuxEnd>,
    },
}

/// The threads of a trace.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Decoded {
    /// The histories, by thread.
    pub threads: Vec<History>,
    /// The calls of the threads for which [`Decoder::functions`](crate::Decoder::functions) has
    /// functions.
    pub forests: BTreeMap<Tid, Forest>,
    /// The reports by processor, if the trace is per processor.
    pub cpus: Vec<CpuReport>,
}

impl Input {
    /// Returns the number of packet bytes.
    #[must_use]
    pub fn trace_len(&self) -> u64 {
        self.trace().len() as u64
    }

    /// Returns the packets.
    pub(crate) fn trace(&self) -> &[u8] {
        match self {
            Self::Thread { trace, .. } | Self::Cpu { trace, .. } => (**trace).as_ref(),
        }
    }
}
