//! What packets tell besides outcomes and targets of branches.

use super::timekeeper::When;
use backtrail_pt::packet::{ExecMode, Tnt};

/// Something that happened at a place in the flow.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub kind: Kind,
    /// Its address; what it means depends on the kind. `None`: not told.
    pub ip: Option<u64>,
    /// A PSB+ says it again.
    pub status: bool,
    /// When.
    pub when: Option<When>,
}

impl Event {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            ip: None,
            status: false,
            when: None,
        }
    }

    pub fn status(kind: Kind) -> Self {
        Self {
            status: true,
            ..Self::new(kind)
        }
    }
}

/// The kinds of events (libipt's `pt_event_type`, without interrupt flags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Tracing is on from the event's address on; the TIP.PGE stands at `packet`.
    Enabled {
        packet: usize,
    },
    /// Tracing is off; the event's address is where the flow went.
    Disabled,
    /// The same, before the instruction at `at` ran.
    AsyncDisabled {
        at: u64,
    },
    /// The flow went to the event's address before the instruction at `from` ran.
    AsyncBranch {
        from: u64,
    },
    /// Packets were lost; the flow goes on at the event's address. The OVF stands at `packet`.
    Overflow {
        packet: usize,
    },
    /// Another mode.
    ExecMode(ExecMode),
    /// A transaction began, ended or was aborted.
    Tsx {
        aborted: bool,
    },
    /// CR3 was written.
    Paging,
    /// The same, as part of an asynchronous branch.
    AsyncPaging,
    /// A VMCS was loaded.
    Vmcs,
    /// The same, as part of an asynchronous branch.
    AsyncVmcs,
    /// TraceStop.
    Stop,
    Exstop,
    Mwait,
    Ptwrite {
        value: u64,
    },
    Interrupt,
    /// IRET and its kin.
    Iret,
    Smi,
    Init,
    VmEntry,
    VmExit(VmExit),
    Shutdown,
    UserInterrupt,
    UserIret,
    /// CBR, MNT, PWRE, PWRX, RSM, SIPI: of no place.
    AtOnce,
    /// Only here to take the packet that belongs to it.
    Ignore,
}

/// Which data of a VM exit were there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VmExit {
    pub qualification: bool,
    pub reason: bool,
}

/// What comes next in a trace.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// Outcomes of conditional branches.
    Tnt(Tnt),
    /// The target of a branch; `None`: not told.
    Tip(Option<u64>),
    Event(Event),
}
