//! OVF: where the flow goes on behind lost packets (SDM volume 3, "Overflow Packet"; errata SKD010, APL11,
//! APL12).

use super::{Events, Told, header};
use crate::engine::native::error::Error;
use crate::engine::native::event::{Event, Item, Kind};
use crate::engine::native::packets::Packets;
use crate::engine::native::queue::Binding;
use crate::engine::native::timekeeper::Timekeeper;
use backtrail_pt::packet::{IpPayload, Packet};

/// How the packets behind an OVF were read.
enum Found {
    /// The event is this, and the packet that is next now is not to be left out.
    Here(Event),
    /// The event is this, and the packet that is next is done with.
    Behind(Event),
    /// The erratum does not apply.
    Nothing,
}

impl Events<'_> {
    pub(super) fn overflow(&mut self) -> Result<Told, Error> {
        // It ends a PSB+ as PSBEND does.
        if let told @ (Told::Done(_) | Told::More(_)) = self.header_event()? {
            return Ok(told);
        }
        let packet = self.offset;
        self.reset();
        self.time.overflow();
        let event = self.stamped(Event::new(Kind::Overflow { packet }));
        let found = match find_fup(&self.packets) {
            Ok(Some(behind)) => {
                if self.errata.apl12
                    && let Found::Behind(event) = self.apl12(behind, &event)?
                {
                    return Ok(Told::Done(Item::Event(event)));
                }
                self.queue.push(Binding::OWN_FUP, event)?;
                return Ok(Told::Nothing);
            }
            other => other.map(drop),
        };
        if self.errata.skd010 {
            match self.skd010(&event)? {
                Found::Here(event) => return Ok(Told::More(Item::Event(event))),
                Found::Behind(event) => return Ok(Told::Done(Item::Event(event))),
                Found::Nothing => {}
            }
        }
        if self.errata.apl11
            && found == Err(Error::BadContext)
            && let Found::Behind(event) = self.apl11(&event)?
        {
            return Ok(Told::Done(Item::Event(event)));
        }
        match found {
            Err(error) if error != Error::End => Err(error),
            _ => Ok(Told::Done(Item::Event(event))),
        }
    }

    /// Erratum SKD010: the FUP is missing. What comes tells whether tracing is on, and where.
    fn skd010(&mut self, event: &Event) -> Result<Found, Error> {
        let mut ahead = self.packets.clone();
        let mut time = self.time.clone();
        let mut transaction: Option<bool> = None;
        loop {
            let packet = match ahead.next() {
                Err(Error::End) => return Ok(Found::Nothing),
                other => other?,
            };
            if time.take(&packet, false)? {
                continue;
            }
            match packet {
                Packet::TipPgd(_) => return Ok(self.off(event, ahead, packet, time)),
                Packet::ModeTsx { .. } if transaction.is_some() => return Ok(Found::Nothing),
                Packet::ModeTsx { abort, .. } => transaction = Some(abort),
                Packet::Fup(ip) => {
                    if let Some(aborted) = transaction {
                        let transaction = Event::new(Kind::Tsx { aborted });
                        self.queue.push(Binding::OWN_FUP, transaction)?;
                    }
                    return Ok(Found::Here(self.on(event, ahead, packet, ip, time)));
                }
                Packet::Tip(ip) => return Ok(Found::Behind(self.on(event, ahead, packet, ip, time))),
                Packet::Psb => {
                    return match header::find_fup(&ahead) {
                        Err(Error::End) | Ok(None) => Ok(Found::Nothing),
                        Err(error) => Err(error),
                        Ok(Some(ip)) => Ok(Found::Here(self.on(event, ahead, packet, ip, time))),
                    };
                }
                Packet::PsbEnd => return Err(Error::BadContext),
                Packet::Pip { .. }
                | Packet::Vmcs(_)
                | Packet::ModeExec(_)
                | Packet::Mnt(_)
                | Packet::Pwre { .. }
                | Packet::Pwrx { .. }
                | Packet::Evd { .. }
                | Packet::Exstop { ip: false }
                | Packet::Ptw { ip: false, .. }
                | Packet::Cfe { ip: false, .. } => {}
                _ => return Ok(Found::Nothing),
            }
        }
    }

    /// Erratum APL11: an extra TIP.PGD, behind which tracing is off.
    fn apl11(&mut self, event: &Event) -> Result<Found, Error> {
        let mut ahead = self.packets.clone();
        let mut time = self.time.clone();
        loop {
            let packet = ahead.next()?;
            if time.take(&packet, false)? {
                continue;
            }
            match packet {
                Packet::TipPgd(_) => return Ok(self.off(event, ahead, packet, time)),
                Packet::Mnt(_) | Packet::Cfe { .. } | Packet::Evd { .. } => {}
                _ => return Ok(Found::Nothing),
            }
        }
    }

    /// Erratum APL12: the FUP, which ends before `behind`, is one too many: tracing is off.
    fn apl12(&mut self, behind: usize, event: &Event) -> Result<Found, Error> {
        let mut ahead = self.packets.clone();
        ahead.seek(behind);
        loop {
            let off = match ahead.next() {
                Err(Error::End) => false,
                Err(error) => return Err(error),
                Ok(Packet::TipPge(_) | Packet::TraceStop) => true,
                Ok(Packet::Psb) => match header::find_fup(&ahead) {
                    Err(Error::End) | Ok(Some(_)) => false,
                    Err(error) => return Err(error),
                    Ok(None) => true,
                },
                Ok(
                    Packet::TntShort(_)
                    | Packet::TntLong(_)
                    | Packet::Tip(_)
                    | Packet::TipPgd(_)
                    | Packet::PsbEnd
                    | Packet::Ovf,
                ) => false,
                Ok(_) => continue,
            };
            if !off {
                return Ok(Found::Nothing);
            }
            while self.packets.offset() < behind {
                let packet = self.packets.next()?;
                self.time.take(&packet, false)?;
            }
            return Ok(Found::Behind(Event {
                when: self.time.when(),
                ..event.clone()
            }));
        }
    }

    /// Tracing is off behind `packet`.
    fn off(&mut self, event: &Event, at: Packets<'_>, packet: Packet, time: Timekeeper) -> Found {
        self.packets.seek(at.offset());
        (self.packet, self.time) = (Ok(packet), time);
        Found::Behind(event.clone())
    }

    /// Tracing is on at an address.
    fn on(
        &mut self,
        event: &Event,
        at: Packets<'_>,
        packet: Packet,
        ip: IpPayload,
        time: Timekeeper,
    ) -> Event {
        self.read_ip(ip);
        self.packets.seek(at.offset());
        (self.packet, self.time, self.enabled) = (Ok(packet), time, true);
        Event {
            ip: self.ip,
            ..event.clone()
        }
    }
}

/// Looks for the FUP that an OVF binds to while tracing is on: the offset behind it. `None`: other packets
/// tell that tracing was off.
fn find_fup(packets: &Packets<'_>) -> Result<Option<usize>, Error> {
    let mut ahead = packets.clone();
    loop {
        match ahead.next()? {
            Packet::Fup(_) => return Ok(Some(ahead.offset())),
            Packet::Mnt(_)
            | Packet::Cbr(_)
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_) => {}
            Packet::PsbEnd
            | Packet::Tip(_)
            | Packet::TipPgd(_)
            | Packet::TntShort(_)
            | Packet::TntLong(_) => return Err(Error::BadContext),
            _ => return Ok(None),
        }
    }
}
