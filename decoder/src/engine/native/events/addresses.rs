//! The packets with an address (FUP, TIP, TIP.PGE, TIP.PGD) and the events that bind to them.

use super::{Events, PacketResult};
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent, TraceItem};
use crate::engine::native::event_queue::Binding;
use backtrail_pt::packet::IpPayload;

impl Events<'_> {
    /// FUP: the address of an earlier event, or the source of an asynchronous branch.
    pub(super) fn fup(&mut self, payload: IpPayload) -> Result<PacketResult, Error> {
        self.read_ip(payload);
        loop {
            if self.queue.waits(Binding::OWN_FUP) {
                self.bound = true;
            }
            let Some(mut event) = self.queue.take(Binding::FUP.or(Binding::OWN_FUP)) else {
                if !self.bound {
                    let from = self.ip.ok_or(Error::NoIp)?;
                    let branch = TraceEvent::new(EventKind::AsyncBranch { from });
                    self.queue.push(Binding::TIP, branch)?;
                }
                return Ok(PacketResult::Nothing);
            };
            match event.kind {
                EventKind::Ignore => continue,
                // Its time is the time of the OVF.
                EventKind::Overflow { .. } => {
                    self.enabled = true;
                    event.ip = self.ip;
                }
                EventKind::AtOnce => event.time = self.time.now(),
                EventKind::Tsx { .. }
                | EventKind::Exstop
                | EventKind::Mwait
                | EventKind::Ptwrite { .. }
                | EventKind::ExecMode(_)
                | EventKind::Interrupt
                | EventKind::Iret
                | EventKind::Smi
                | EventKind::Init
                | EventKind::VmEntry
                | EventKind::VmExit(_)
                | EventKind::Shutdown
                | EventKind::UserInterrupt
                | EventKind::UserIret
                | EventKind::Trigger { .. } => {
                    event.time = self.time.now();
                    event.ip = self.ip;
                }
                _ => return Err(Error::BadContext),
            }
            return Ok(PacketResult::Partial(TraceItem::Event(event)));
        }
    }

    /// TIP: a branch target, then the events that bind to it.
    pub(super) fn tip(&mut self, payload: IpPayload) -> Result<PacketResult, Error> {
        if !self.enabled {
            return Err(Error::BadContext);
        }
        self.read_ip(payload);
        if !self.bound {
            self.bound = true;
            let ip = self.ip;
            return Ok(PacketResult::Partial(match self.queue.take_branch() {
                Some(branch) => TraceItem::Event(self.with_time(TraceEvent { ip, ..branch })),
                None => TraceItem::Tip(ip),
            }));
        }
        self.bound_to_tip(|kind| {
            matches!(
                kind,
                EventKind::ExecMode(_) | EventKind::AsyncPaging | EventKind::AsyncVmcs
            )
        })
    }

    /// TIP.PGE: tracing is enabled, then the events that bind to it.
    pub(super) fn tip_pge(&mut self, payload: IpPayload) -> Result<PacketResult, Error> {
        self.read_ip(payload);
        if !self.bound {
            (self.bound, self.enabled) = (true, true);
            let packet = self.offset;
            let event = TraceEvent {
                ip: self.ip,
                ..TraceEvent::new(EventKind::Enabled { packet })
            };
            return Ok(PacketResult::Partial(TraceItem::Event(self.with_time(event))));
        }
        self.bound_to_tip(|kind| matches!(kind, EventKind::ExecMode(_)))
    }

    /// Returns the next event that waits for a TIP, if its kind is allowed.
    fn bound_to_tip(&mut self, may: impl Fn(&EventKind) -> bool) -> Result<PacketResult, Error> {
        while let Some(event) = self.queue.take(Binding::TIP) {
            let ip = self.ip;
            match event.kind {
                EventKind::Ignore => {}
                ref kind if may(kind) => {
                    return Ok(PacketResult::Partial(TraceItem::Event(
                        self.with_time(TraceEvent { ip, ..event }),
                    )));
                }
                _ => return Err(Error::BadContext),
            }
        }
        Ok(PacketResult::Nothing)
    }

    /// TIP.PGD: tracing is disabled.
    pub(super) fn tip_pgd(&mut self, payload: IpPayload) -> Result<PacketResult, Error> {
        self.read_ip(payload);
        let Some(mut event) = self.queue.take(Binding::TIP) else {
            if self.bound {
                return Ok(PacketResult::Nothing);
            }
            self.enabled = false;
            let ip = self.ip;
            return Ok(self.event_now(TraceEvent {
                ip,
                ..TraceEvent::new(EventKind::Disabled)
            }));
        };
        match event.kind {
            EventKind::AsyncBranch { from } => {
                event.kind = EventKind::AsyncDisabled { at: from };
                event.ip = self.ip;
                (self.enabled, self.bound) = (false, true);
            }
            EventKind::AsyncPaging | EventKind::AsyncVmcs if !self.bound => return Err(Error::BadContext),
            // They have no address, because tracing is disabled.
            EventKind::AsyncPaging | EventKind::AsyncVmcs | EventKind::ExecMode(_) => {}
            _ => return Err(Error::BadContext),
        }
        Ok(PacketResult::Partial(TraceItem::Event(self.with_time(event))))
    }
}
