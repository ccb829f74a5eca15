//! Event trace: CFE and the EVD before it (SDM volume 3, "Event Trace").

use super::{Events, Told};
use crate::engine::native::error::Error;
use crate::engine::native::event::{Event, Kind, VmExit};
use crate::engine::native::queue::Binding;

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

/// What a CFE without a FUP of its own binds to while tracing is on.
enum Alone {
    /// The FUP of the asynchronous branch that it is part of.
    Branch,
    /// Nothing.
    Nothing,
}

impl Events<'_> {
    pub(super) fn control_flow_event(&mut self, ip: bool, kind: u8) -> Result<Told, Error> {
        let data = self.queue.take(Binding::CFE);
        let (kind, alone) = match kind {
            cfe::INTERRUPT => (Kind::Interrupt, Alone::Branch),
            cfe::VM_EXIT | cfe::VM_EXIT_INTERRUPT => (Kind::VmExit(VmExit::default()), Alone::Branch),
            cfe::IRET => (Kind::Iret, Alone::Nothing),
            cfe::SMI => (Kind::Smi, Alone::Branch),
            cfe::RSM | cfe::SIPI if ip => return Err(Error::BadPacket),
            cfe::RSM | cfe::SIPI => (Kind::AtOnce, Alone::Branch),
            cfe::INIT => (Kind::Init, Alone::Branch),
            cfe::VM_ENTRY => (Kind::VmEntry, Alone::Nothing),
            cfe::SHUTDOWN => (Kind::Shutdown, Alone::Nothing),
            cfe::USER_INTERRUPT => (Kind::UserInterrupt, Alone::Branch),
            cfe::USER_IRET => (Kind::UserIret, Alone::Nothing),
            _ if data.is_some() => return Err(Error::BadContext),
            _ if ip => return self.wait(Binding::OWN_FUP, Kind::Ignore),
            _ => return Ok(Told::Nothing),
        };
        // Data of another event than this one.
        if data.is_some_and(|data| std::mem::discriminant(&data.kind) != std::mem::discriminant(&kind)) {
            return Err(Error::BadContext);
        }
        match alone {
            _ if ip => self.wait(Binding::OWN_FUP, kind),
            Alone::Branch if self.enabled => self.wait(Binding::FUP, kind),
            _ => Ok(self.done(Event::new(kind))),
        }
    }

    pub(super) fn event_data(&mut self, kind: u8) -> Result<Told, Error> {
        let waiting = self.queue.first(Binding::CFE);
        match kind {
            evd::CR2 if waiting.is_some() => Err(Error::BadContext),
            evd::CR2 => self.wait(Binding::CFE, Kind::Interrupt),
            evd::VM_EXIT_QUALIFICATION | evd::VM_EXIT_REASON => {
                let of = |exit: &mut VmExit| match kind {
                    evd::VM_EXIT_QUALIFICATION => std::mem::replace(&mut exit.qualification, true),
                    _ => std::mem::replace(&mut exit.reason, true),
                };
                match waiting {
                    Some(Event {
                        kind: Kind::VmExit(exit),
                        ..
                    }) => {
                        if of(exit) {
                            return Err(Error::BadContext);
                        }
                        Ok(Told::Nothing)
                    }
                    Some(_) => Err(Error::BadContext),
                    None => {
                        let mut exit = VmExit::default();
                        of(&mut exit);
                        self.wait(Binding::CFE, Kind::VmExit(exit))
                    }
                }
            }
            _ => Ok(Told::Nothing),
        }
    }
}
