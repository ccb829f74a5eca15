//! Marks between the instructions of a history: gaps, system calls, signals.

use crate::image::VersionedImage;
use backtrail_pt::{Avma, Tsc};
use std::fmt;

/// A mark between instruction `index - 1` and instruction `index`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The instruction after it; the history's length if there is none.
    pub index: u64,
    /// The kind.
    pub kind: MarkKind,
    /// The last timestamp before it, if any.
    pub tsc: Option<Tsc>,
}

/// The kinds of marks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkKind {
    /// History is missing here.
    Gap(Gap),
    /// The thread left the traced code by its own instruction and came back: a system call, or code
    /// outside of a filter. No traced code is missing.
    LeftUser {
        /// Where the thread came back.
        resumed: Resumed,
        /// The last timestamp when it was back.
        back: Option<Tsc>,
    },
    /// The flow was diverted asynchronously before the instruction at `from`. If it continues at
    /// the same address, it was an interrupt or a fault. If not, it was a signal, or a handler
    /// changed the context.
    Interrupted {
        /// The instruction that did not run.
        from: Avma,
        /// The last timestamp when it was back.
        back: Option<Tsc>,
    },
    /// The thread was off-CPU between two of its executions. Nothing is missing.
    Descheduled {
        /// The timestamp of the switch back in.
        back: Option<Tsc>,
    },
    /// A value written by `PTWRITE`.
    Ptwrite(u64),
}

/// Where the flow came back after it left the traced code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// After the instruction that left: a system call returned.
    After,
    /// At the instruction that left: it runs again.
    Again,
    /// At another address: a signal handler, the context that `rt_sigreturn` restored, or an entry
    /// into a filter's range.
    Elsewhere(Avma),
}

/// A gap: missing history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The cause.
    pub cause: GapCause,
    /// The offset in the trace bytes of the thread (or processor) at which the flow was lost.
    pub trace_offset: u64,
    /// The offset in the trace bytes at which the flow resumed; `None`: it did not.
    pub resumed_offset: Option<u64>,
}

/// The cause of a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapCause {
    /// The history starts in the middle of the run: the trace buffer is a ring, or the recorder
    /// attached to a running thread.
    Start,
    /// The processor (or the software recorder) could not keep up and dropped packets.
    Overflow,
    /// There are no code bytes at this address.
    LostCode {
        /// The address of the thread.
        at: Avma,
    },
    /// The code at this address changed at about this time, and it is unknown which version ran.
    UncertainCode {
        /// The address of the thread.
        at: Avma,
    },
    /// The trace does not match the code, or is invalid.
    Corrupt {
        /// The error message of the engine.
        error: String,
        /// The address of the thread, if it is known.
        at: Option<Avma>,
    },
    /// Another instruction than that of the code ran, and ended the traced flow. A software
    /// breakpoint does so, because the files have the original instruction.
    OtherInstruction {
        /// The address of the instruction.
        at: Avma,
    },
    /// A return goes to a call that an earlier gap hides.
    UnknownCaller {
        /// The address of the return.
        at: Avma,
    },
    /// The code runs in circles without a packet, so it is not the code that ran.
    RunAway {
        /// The address at which the engine stopped.
        at: Avma,
    },
    /// More instructions would have run without a packet since the last PSB than the trace can
    /// represent.
    Overlong {
        /// The address at which the engine stopped.
        at: Avma,
    },
    /// Instructions of a per-CPU trace that belong to this thread or another: a context switch
    /// happened between two timestamps.
    UnattributedSwitch,
    /// The thread has several trace buffers, and its execution between two of them is unknown.
    NoTrace,
}

impl GapCause {
    /// Returns whether the engine failed to decode. It did not if the trace source stated the loss,
    /// or if the engine stopped at a limit of its own.
    #[must_use]
    pub fn is_decode_error(&self) -> bool {
        matches!(
            self,
            Self::LostCode { .. } | Self::UncertainCode { .. } | Self::Corrupt { .. }
        )
    }

    /// Returns the cause with which flow ended in this code.
    pub(crate) fn in_code(self, code: &VersionedImage<'_>) -> Self {
        match self {
            Self::LostCode { at } if code.is_uncertain(at) => Self::UncertainCode { at },
            cause => cause,
        }
    }
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => write!(f, "history begins here"),
            Self::Overflow => write!(f, "the trace source dropped packets (overflow)"),
            Self::LostCode { at } => write!(f, "no code bytes for {at}"),
            Self::UncertainCode { at } => write!(
                f,
                "the code at {at} changed at about this time; the version that ran is unknown"
            ),
            Self::Corrupt { error, at: Some(at) } => write!(f, "{error} at {at}"),
            Self::Corrupt { error, at: None } => write!(f, "{error}"),
            Self::OtherInstruction { at } => write!(
                f,
                "another instruction than that of the file ran at {at}, as with a debugger's breakpoint"
            ),
            Self::UnknownCaller { at } => {
                write!(f, "the return at {at} goes to a call that an earlier gap hides")
            }
            Self::RunAway { at } => write!(f, "the code runs in circles without a packet at {at}"),
            Self::Overlong { at } => write!(
                f,
                "more instructions without a packet than a trace of this size can represent, at {at}"
            ),
            Self::UnattributedSwitch => {
                write!(
                    f,
                    "a context switch between timestamps; the thread that ran is unknown"
                )
            }
            Self::NoTrace => write!(f, "no trace between two buffers of the thread"),
        }
    }
}
