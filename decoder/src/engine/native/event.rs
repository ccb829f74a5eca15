//! The events of packets other than branch outcomes and targets.

use super::time::EventTime;
use backtrail_pt::packet::{ExecMode, Tnt};

/// An event at a place in the flow.
#[derive(Clone, Debug)]
pub(super) struct TraceEvent {
    pub kind: EventKind,
    /// The event's address, whose meaning depends on the kind. `None`: the packet has none.
    pub ip: Option<u64>,
    /// A PSB+ repeats it.
    pub status: bool,
    /// The event's time.
    pub time: Option<EventTime>,
}

impl TraceEvent {
    pub fn new(kind: EventKind) -> Self {
        Self {
            kind,
            ip: None,
            status: false,
            time: None,
        }
    }

    pub fn status(kind: EventKind) -> Self {
        Self {
            status: true,
            ..Self::new(kind)
        }
    }
}

/// The kinds of events (libipt's `pt_event_type`, without interrupt flags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// Tracing is enabled from the event's address on; the offset of the TIP.PGE is `packet`.
    Enabled {
        packet: usize,
    },
    /// Tracing is disabled; the flow went to the event's address.
    Disabled,
    /// Tracing is disabled before the instruction at `at` ran.
    AsyncDisabled {
        at: u64,
    },
    /// The flow went to the event's address before the instruction at `from` ran.
    AsyncBranch {
        from: u64,
    },
    /// Packets were lost. The flow resumes at the event's address; the offset of the OVF is
    /// `packet`.
    Overflow {
        packet: usize,
    },
    /// The execution mode changed.
    ExecMode(ExecMode),
    /// A transaction began, ended or was aborted.
    Tsx {
        aborted: bool,
    },
    /// CR3 was written.
    Paging,
    /// CR3 was written as part of an asynchronous branch.
    AsyncPaging,
    /// A VMCS was loaded.
    Vmcs,
    /// A VMCS was loaded as part of an asynchronous branch.
    AsyncVmcs,
    /// TraceStop.
    Stop,
    Exstop,
    Mwait,
    Ptwrite {
        value: u64,
    },
    Interrupt,
    /// IRET and similar instructions.
    Iret,
    Smi,
    Init,
    VmEntry,
    VmExit(VmExit),
    Shutdown,
    UserInterrupt,
    UserIret,
    /// A trigger fired, this number of instructions after the last address or outcome.
    Trigger {
        instructions: u16,
    },
    /// CBR, MNT, PWRE, PWRX, RSM, SIPI: not bound to an address.
    AtOnce,
    /// No effect; consumes the packet that it binds to.
    Ignore,
}

/// The data that preceded a VM exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VmExit {
    pub qualification: bool,
    pub reason: bool,
}

/// The next item of a trace.
#[derive(Clone, Debug)]
pub(super) enum TraceItem {
    /// Outcomes of conditional branches.
    Tnt(Tnt),
    /// The target of a branch; `None`: suppressed.
    Tip(Option<u64>),
    Event(TraceEvent),
}
