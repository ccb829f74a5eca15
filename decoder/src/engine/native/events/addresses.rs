//! The packets with an address: FUP, TIP, TIP.PGE, TIP.PGD, and what binds to them.

use super::{Events, Told};
use crate::engine::native::error::Error;
use crate::engine::native::event::{Event, Item, Kind};
use crate::engine::native::queue::Binding;
use backtrail_pt::packet::IpPayload;

impl Events<'_> {
    /// FUP: the address of an event before it, or the source of an asynchronous branch.
    pub(super) fn fup(&mut self, payload: IpPayload) -> Result<Told, Error> {
        self.read_ip(payload);
        loop {
            if self.queue.waits(Binding::OWN_FUP) {
                self.bound = true;
            }
            let Some(mut event) = self.queue.take(Binding::FUP.or(Binding::OWN_FUP)) else {
                if !self.bound {
                    let from = self.ip.ok_or(Error::NoIp)?;
                    let branch = Event::new(Kind::AsyncBranch { from });
                    self.queue.push(Binding::TIP, branch)?;
                }
                return Ok(Told::Nothing);
            };
            match event.kind {
                Kind::Ignore => continue,
                // Its time is that of the OVF.
                Kind::Overflow { .. } => {
                    self.enabled = true;
                    event.ip = self.ip;
                }
                Kind::AtOnce => event.when = self.time.when(),
                Kind::Tsx { .. }
                | Kind::Exstop
                | Kind::Mwait
                | Kind::Ptwrite { .. }
                | Kind::ExecMode(_)
                | Kind::Interrupt
                | Kind::Iret
                | Kind::Smi
                | Kind::Init
                | Kind::VmEntry
                | Kind::VmExit(_)
                | Kind::Shutdown
                | Kind::UserInterrupt
                | Kind::UserIret => {
                    event.when = self.time.when();
                    event.ip = self.ip;
                }
                _ => return Err(Error::BadContext),
            }
            return Ok(Told::More(Item::Event(event)));
        }
    }

    /// TIP: where a branch went, then the events that bind to it.
    pub(super) fn tip(&mut self, payload: IpPayload) -> Result<Told, Error> {
        if !self.enabled {
            return Err(Error::BadContext);
        }
        self.read_ip(payload);
        if !self.bound {
            self.bound = true;
            let ip = self.ip;
            return Ok(Told::More(match self.queue.take_branch() {
                Some(branch) => Item::Event(self.stamped(Event { ip, ..branch })),
                None => Item::Tip(ip),
            }));
        }
        self.bound_to_tip(|kind| matches!(kind, Kind::ExecMode(_) | Kind::AsyncPaging | Kind::AsyncVmcs))
    }

    /// TIP.PGE: tracing is on, then the events that bind to it.
    pub(super) fn tip_pge(&mut self, payload: IpPayload) -> Result<Told, Error> {
        self.read_ip(payload);
        if !self.bound {
            (self.bound, self.enabled) = (true, true);
            let packet = self.offset;
            let event = Event {
                ip: self.ip,
                ..Event::new(Kind::Enabled { packet })
            };
            return Ok(Told::More(Item::Event(self.stamped(event))));
        }
        self.bound_to_tip(|kind| matches!(kind, Kind::ExecMode(_)))
    }

    /// The next event that waits for a TIP, of the kinds that may.
    fn bound_to_tip(&mut self, may: impl Fn(&Kind) -> bool) -> Result<Told, Error> {
        while let Some(event) = self.queue.take(Binding::TIP) {
            let ip = self.ip;
            match event.kind {
                Kind::Ignore => {}
                ref kind if may(kind) => {
                    return Ok(Told::More(Item::Event(self.stamped(Event { ip, ..event }))));
                }
                _ => return Err(Error::BadContext),
            }
        }
        Ok(Told::Nothing)
    }

    /// TIP.PGD: tracing is off.
    pub(super) fn tip_pgd(&mut self, payload: IpPayload) -> Result<Told, Error> {
        self.read_ip(payload);
        let Some(mut event) = self.queue.take(Binding::TIP) else {
            if self.bound {
                return Ok(Told::Nothing);
            }
            self.enabled = false;
            let ip = self.ip;
            return Ok(self.done(Event {
                ip,
                ..Event::new(Kind::Disabled)
            }));
        };
        match event.kind {
            Kind::AsyncBranch { from } => {
                event.kind = Kind::AsyncDisabled { at: from };
                event.ip = self.ip;
                (self.enabled, self.bound) = (false, true);
            }
            Kind::AsyncPaging | Kind::AsyncVmcs if !self.bound => return Err(Error::BadContext),
            // They are of no address: tracing is off when they come.
            Kind::AsyncPaging | Kind::AsyncVmcs | Kind::ExecMode(_) => {}
            _ => return Err(Error::BadContext),
        }
        Ok(Told::More(Item::Event(self.stamped(event))))
    }
}
