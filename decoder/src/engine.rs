//! The seam between a decode engine and everything that is made of what it decodes.

#[cfg(feature = "libipt")]
pub mod libipt;
pub mod native;

use crate::{Canceled, Config, GapCause, Memory, Runs};
use backtrail_pt::{Avma, Cofi, Cpu, Tsc};
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

/// Turns PT bytes into instructions and events.
///
/// The contract, which makes engines comparable: instructions are pushed in order; an event comes
/// before the instruction it is before; where decoding is stuck it pushes [`Event::Lost`] and goes
/// on at the next PSB. In code that is nobody's ([`Memory::is_nobodys`]) it may go on before it, where tracing comes on again: it
/// tells times meanwhile, and where tracing went off.
pub trait Engine: Sync {
    /// As it is called on the command line.
    fn name(&self) -> &'static str;

    /// Decodes all of `trace`.
    fn decode(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
    ) -> Result<(), Canceled>;

    /// The engine that can decode a trace in segments, if it is this.
    fn native(&self) -> Option<&native::Native> {
        None
    }
}

/// Takes what an engine decodes: instructions one by one, or runs of them.
pub trait Sink {
    /// A decode begins: runs are numbered anew.
    fn begin(&mut self) {}

    /// The next instruction executed.
    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi);

    /// The next runs executed, by their numbers in `runs`, which only grows in a decode.
    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        for &run in executed {
            for found in runs.instructions(run) {
                self.instruction(found.pc, found.len, found.cofi);
            }
        }
    }

    /// Something that happened before the next instruction.
    fn event(&mut self, event: Event);

    /// What follows happened when so many of the notes were taken that an engine takes of a segment, whose time is worked out later.
    fn noted(&mut self, _notes: usize) {}

    /// Called now and then with how many trace bytes are done; `Break` ends the decode.
    fn progress(&mut self, offset: u64) -> ControlFlow<()>;
}

/// A time stamp out of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The time-stamp counter, refined by MTC and CYC packets where the engine can.
    pub tsc: Tsc,
    /// MTC packets dropped since the last TSC packet: the estimate is that much worse.
    pub lost_mtc: u32,
    /// CYC packets dropped since the last TSC packet.
    pub lost_cyc: u32,
}

/// Something in the flow that is no instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The engine found a PSB and starts there, at the beginning and after [`Event::Lost`].
    Sync {
        /// Of the PSB in the trace bytes.
        offset: u64,
    },
    /// The flow that follows begins with the packet at this offset of the trace bytes: a TIP.PGE, or
    /// the OVF that it comes back from. After [`Event::Sync`], it begins with the PSB.
    ///
    /// What is read of the code from now on is as it was then.
    FlowBegins {
        /// In the trace bytes.
        offset: u64,
    },
    /// What follows happened at this time or later.
    Time(Stamp),
    /// Tracing is on from here.
    Enabled {
        /// The next instruction.
        at: Avma,
        /// It was on already, said again after a PSB.
        status: bool,
    },
    /// Tracing is off: a system call, an interrupt, a fault, or the flow left a filter.
    Disabled {
        /// For an asynchronous one, the instruction that did not run any more; `None`: the last
        /// instruction pushed left by itself.
        from: Option<Avma>,
        /// Where the flow went, when the trace says so.
        to: Option<Avma>,
    },
    /// The flow was taken elsewhere asynchronously while traced: an interrupt in a kernel trace.
    Branched {
        /// The instruction that did not run.
        from: Avma,
    },
    /// Packets were dropped by the trace source.
    Overflow {
        /// In the trace bytes.
        offset: u64,
    },
    /// A `PTWRITE` instruction.
    Ptwrite {
        /// Its operand.
        value: u64,
    },
    /// The following ran on this processor.
    Cpu(Cpu),
    /// The flow is lost.
    Lost {
        /// Why.
        cause: GapCause,
        /// Where in the trace bytes.
        offset: u64,
        /// libipt returns a decode error here.
        error: bool,
    },
}

impl Event {
    /// The event, with the offsets of a trace in front of which there are so many bytes more.
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

/// The engines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Our own.
    #[default]
    Native,
    /// Intel's library, by its instruction flow layer: feature `libipt`.
    #[cfg(feature = "libipt")]
    Libipt,
}

impl EngineKind {
    /// All that this build has, the default first.
    pub const ALL: &[Self] = &[
        Self::Native,
        #[cfg(feature = "libipt")]
        Self::Libipt,
    ];

    /// The engine.
    #[must_use]
    pub fn engine(self) -> &'static dyn Engine {
        match self {
            Self::Native => &native::Native,
            #[cfg(feature = "libipt")]
            Self::Libipt => &libipt::Libipt,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine().name())
    }
}

/// The text named no engine that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseEngineError {
    /// No build has it.
    #[error("there is no such decode engine: there are native and libipt")]
    Unknown,
    /// This build does not have it.
    #[error("this build has no libipt engine: build with --features libipt, or use the engine native")]
    NotBuilt,
}

impl FromStr for EngineKind {
    type Err = ParseEngineError;

    fn from_str(text: &str) -> Result<Self, ParseEngineError> {
        let found = Self::ALL.iter().find(|kind| kind.engine().name() == text);
        found.copied().ok_or(match text {
            "libipt" => ParseEngineError::NotBuilt,
            _ => ParseEngineError::Unknown,
        })
    }
}
