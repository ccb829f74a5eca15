//! Event trace: CFE and the EVD before it (SDM volume 3, "Event Trace").

use super::{Events, PacketResult};
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent, VmExit};
use crate::engine::native::event_queue::Binding;

/// Kinds of CFE (SDM volume 3, "CFE Packet Type and Vector Fields Details").
mod cfe {
    pub const INTERRUPT: u8 = 1;
    pub const IRET: u8 = 2;
    pub const SMI: u8 = 3;
    pub const RSM: u8 = 4;
    pub const SIPI: u8 = 5;
    pub const INIT: u8 = 6;
    pub const VM_ENTRY: u8 = 7;
    pub const VM_EXIT: u8 = 8;
    pub const VM_EXIT_INTERRUPT: u8 = 9;
    pub const SHUTDOWN: u8 = 10;
    pub const USER_INTERRUPT: u8 = 12;
    pub const USER_IRET: u8 = 13;
}

/// Kinds of EVD (SDM volume 3, "EVD Packet Type and Payload Details").
mod evd {
    pub const CR2: u8 = 0;
    pub const VM_EXIT_QUALIFICATION: u8 = 1;
    pub const VM_EXIT_REASON: u8 = 2;
}

/// The binding of a CFE without its own FUP while tracing is enabled.
enum UnboundCfe {
    /// Binds to the FUP of the asynchronous branch that it is part of.
    Branch,
    /// Does not bind.
    Nothing,
}

impl Events<'_> {
    pub(super) fn control_flow_event(&mut self, ip: bool, kind: u8) -> Result<PacketResult, Error> {
        let data = self.queue.take(Binding::CFE);
        let (kind, unbound) = match kind {
            cfe::INTERRUPT => (EventKind::Interrupt, UnboundCfe::Branch),
            cfe::VM_EXIT | cfe::VM_EXIT_INTERRUPT => {
                (EventKind::VmExit(VmExit::default()), UnboundCfe::Branch)
            }
            cfe::IRET => (EventKind::Iret, UnboundCfe::Nothing),
            cfe::SMI => (EventKind::Smi, UnboundCfe::Branch),
            cfe::RSM | cfe::SIPI if ip => return Err(Error::BadPacket),
            cfe::RSM | cfe::SIPI => (EventKind::AtOnce, UnboundCfe::Branch),
            cfe::INIT => (EventKind::Init, UnboundCfe::Branch),
            cfe::VM_ENTRY => (EventKind::VmEntry, UnboundCfe::Nothing),
            cfe::SHUTDOWN => (EventKind::Shutdown, UnboundCfe::Nothing),
            cfe::USER_INTERRUPT => (EventKind::UserInterrupt, UnboundCfe::Branch),
            cfe::USER_IRET => (EventKind::UserIret, UnboundCfe::Nothing),
            _ if data.is_some() => return Err(Error::BadContext),
            _ if ip => return self.wait(Binding::OWN_FUP, EventKind::Ignore),
            _ => return Ok(PacketResult::Nothing),
        };
        // The data belongs to another event.
        if data.is_some_and(|data| std::mem::discriminant(&data.kind) != std::mem::discriminant(&kind)) {
            return Err(Error::BadContext);
        }
        match unbound {
            _ if ip => self.wait(Binding::OWN_FUP, kind),
            UnboundCfe::Branch if self.enabled => self.wait(Binding::FUP, kind),
            _ => Ok(self.event_now(TraceEvent::new(kind))),
        }
    }

    pub(super) fn event_data(&mut self, kind: u8) -> Result<PacketResult, Error> {
        let waiting = self.queue.first(Binding::CFE);
        match kind {
            evd::CR2 if waiting.is_some() => Err(Error::BadContext),
            evd::CR2 => self.wait(Binding::CFE, EventKind::Interrupt),
            evd::VM_EXIT_QUALIFICATION | evd::VM_EXIT_REASON => {
                let of = |exit: &mut VmExit| match kind {
                    evd::VM_EXIT_QUALIFICATION => std::mem::replace(&mut exit.qualification, true),
                    _ => std::mem::replace(&mut exit.reason, true),
                };
                match waiting {
                    Some(TraceEvent {
                        kind: EventKind::VmExit(exit),
                        ..
                    }) => {
                        if of(exit) {
                            return Err(Error::BadContext);
                        }
                        Ok(PacketResult::Nothing)
                    }
                    Some(_) => Err(Error::BadContext),
                    None => {
                        let mut exit = VmExit::default();
                        of(&mut exit);
                        self.wait(Binding::CFE, EventKind::VmExit(exit))
                    }
                }
            }
            _ => Ok(PacketResult::Nothing),
        }
    }
}
