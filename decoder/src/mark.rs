//! What lies between two instructions of a history: gaps, system calls, signals.

use backtrail_pt::{Avma, Tsc};
use std::fmt;

/// Something between instruction `index - 1` and instruction `index`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The instruction before which it is; the history's length when nothing comes after.
    pub index: u64,
    /// What it is.
    pub kind: MarkKind,
    /// The last time stamp before it, if any.
    pub tsc: Option<Tsc>,
}

/// The kinds of marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// History is missing here.
    Gap(Gap),
    /// The thread left the traced code by its own instruction and came back: a system call, or code
    /// outside of a filter. Nothing of the traced code is missing.
    LeftUser {
        /// Where it came back.
        resumed: Resumed,
        /// The last time stamp when it was back.
        back: Option<Tsc>,
    },
    /// The flow was taken away asynchronously before the instruction at `from`: an interrupt or
    /// a fault, when what follows is at the same address, or a signal (or what a handler left, such
    /// as a changed context), when it is at another.
    Interrupted {
        /// The instruction that did not run.
        from: Avma,
        /// The last time stamp when it was back.
        back: Option<Tsc>,
    },
    /// The thread was off the processor, between two of its executions. Nothing is missing.
    Descheduled {
        /// The time stamp of the switch back in.
        back: Option<Tsc>,
    },
    /// `PTWRITE` gave this value.
    Ptwrite(u64),
}

/// Where flow came back after it had left the traced code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// At the instruction after the one that left: a system call returned.
    After,
    /// At the instruction that left: it runs again.
    Again,
    /// At another address: a signal handler, the context `rt_sigreturn` restored, or the way back
    /// into a filter's range.
    Elsewhere(Avma),
}

/// Missing history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Why.
    pub cause: GapCause,
    /// Where in the thread's (or processor's) trace bytes flow was lost.
    pub trace_offset: u64,
    /// Where in the trace bytes flow was found again; `None`: never.
    pub resumed_offset: Option<u64>,
}

/// Why history is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GapCause {
    /// The history begins here, in the middle of the run: the trace buffer is a ring, or it was
    /// attached to a running thread.
    Start,
    /// The processor (or the software recorder) could not keep up and dropped packets.
    Overflow,
    /// There are no code bytes for this address.
    LostCode {
        /// Where the thread was.
        at: Avma,
    },
    /// The trace does not fit the code, or is no valid trace.
    Corrupt {
        /// What the engine says.
        error: String,
        /// Where the thread was, if that is known.
        at: Option<Avma>,
    },
    /// The code would loop here for ever without a packet, so it is not what ran.
    RunAway {
        /// Where the engine was stopped.
        at: Avma,
    },
    /// So many instructions would have run without a packet since the last PSB that the trace cannot stand for them.
    Overlong {
        /// Where the engine was stopped.
        at: Avma,
    },
    /// Instructions of a per-CPU trace that may be this thread's, or another's: a context switch
    /// happened between two time stamps.
    UnattributedSwitch,
    /// The thread has several trace buffers, and what happened between two of them is not known.
    NoTrace,
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => write!(f, "history begins here"),
            Self::Overflow => write!(f, "the trace source dropped packets (overflow)"),
            Self::LostCode { at } => write!(f, "no code bytes for {at}"),
            Self::Corrupt { error, at: Some(at) } => write!(f, "{error} at {at}"),
            Self::Corrupt { error, at: None } => write!(f, "{error}"),
            Self::RunAway { at } => write!(f, "the code loops without a packet at {at}"),
            Self::Overlong { at } => write!(
                f,
                "more instructions without a packet than a trace of this size can stand for, at {at}"
            ),
            Self::UnattributedSwitch => {
                write!(
                    f,
                    "a context switch between time stamps: it is unknown which thread ran"
                )
            }
            Self::NoTrace => write!(f, "no trace between two buffers of the thread"),
        }
    }
}
