//! The interface between a decode engine and the consumers of its output.

pub mod native;

use crate::{Canceled, Config, GapCause, Memory, PathIdx, PathTable};
use backtrail_pt::{Avma, Cofi, Cpu, Tsc};
use std::fmt;
use std::ops::ControlFlow;

/// Turns PT bytes into instructions and events.
///
/// All engines keep the same contract, so that they compare. Instructions are pushed in order. An
/// event is pushed before the instruction that it precedes. Where decoding fails, the engine
/// pushes [`Event::Lost`] and resumes at the place that [`Config::resync`] selects. In foreign code
/// ([`Memory::has_unknown_processes`]) that is the next TIP.PGE at the earliest. Until then it
/// still reports times and where tracing was disabled.
pub trait Engine: Sync {
    /// Returns the engine's name, for reports.
    fn name(&self) -> &'static str;

    /// Decodes all of `trace`.
    fn decode(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
    ) -> Result<(), Canceled>;
}

impl fmt::Debug for dyn Engine + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Receives the output of an engine: single instructions, or paths of blocks.
pub trait Sink {
    /// A decode begins. The engine numbers its paths from 0 again.
    fn begin(&mut self) {}

    /// Receives the next executed instruction.
    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi);

    /// Receives the next executed paths, by their numbers in `table`. The table only grows during a
    /// decode.
    fn paths(&mut self, table: &PathTable<'_>, executed: &[PathIdx]) {
        for &path in executed {
            for found in table.instructions(path) {
                self.instruction(found.pc, found.len, found.cofi);
            }
        }
    }

    /// Receives an event that precedes the next instruction.
    fn event(&mut self, event: Event);

    /// Everything after this call happened after the first `n` timing packets of the segment. Their
    /// timestamps are resolved later.
    fn deferred_time(&mut self, _records: usize) {}

    /// Receives the number of trace bytes done, at intervals. `Break` ends the decode.
    fn progress(&mut self, offset: u64) -> ControlFlow<()>;
}

/// A timestamp of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The time-stamp counter, refined by MTC and CYC packets where the engine supports it.
    pub tsc: Tsc,
    /// MTC packets dropped since the last TSC packet; each makes the estimate less precise.
    pub lost_mtc: u32,
    /// CYC packets dropped since the last TSC packet.
    pub lost_cyc: u32,
}

/// An event in the flow that is not an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The engine found a PSB and starts there: at the beginning and after [`Event::Lost`].
    Sync {
        /// The offset of the PSB in the trace bytes.
        offset: u64,
    },
    /// The flow that follows begins with the packet at this offset: a TIP.PGE, or the OVF that it
    /// resumes from. After [`Event::Sync`] it begins with the PSB.
    ///
    /// From now on the engine reads the code of that time.
    FlowBegins {
        /// The offset in the trace bytes.
        offset: u64,
    },
    /// Everything that follows happened at this time or later.
    Time(Stamp),
    /// Tracing is enabled from here on.
    Enabled {
        /// The next instruction.
        at: Avma,
        /// Tracing was enabled before; a PSB+ repeats it.
        status: bool,
    },
    /// Tracing is disabled: by a system call, an interrupt or a fault, or because the flow left a
    /// filter.
    Disabled {
        /// If it was asynchronous, the instruction that did not run. `None`: the last instruction
        /// pushed disabled tracing itself.
        from: Option<Avma>,
        /// The target of the flow, if the trace reports it.
        to: Option<Avma>,
    },
    /// The flow branched asynchronously while tracing was enabled: an interrupt in a kernel trace.
    Branched {
        /// The instruction that did not run.
        from: Avma,
    },
    /// The trace source dropped packets.
    Overflow {
        /// The offset of the OVF in the trace bytes.
        offset: u64,
    },
    /// A `PTWRITE` instruction ran.
    Ptwrite {
        /// Its operand.
        value: u64,
    },
    /// The instructions that follow ran on this processor.
    Cpu(Cpu),
    /// The flow is lost.
    Lost {
        /// The cause.
        cause: GapCause,
        /// The offset in the trace bytes.
        offset: u64,
    },
}

impl Event {
    /// Returns the event with its trace offsets increased by `by`.
    pub(crate) fn moved(mut self, by: u64) -> Self {
        if let Self::Sync { offset }
        | Self::FlowBegins { offset }
        | Self::Overflow { offset }
        | Self::Lost { offset, .. } = &mut self
        {
            *offset = offset.saturating_add(by);
        }
        self
    }
}
