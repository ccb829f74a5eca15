//! PSB+: the packets that say again what holds (SDM volume 3, "PSB+").

use super::{Events, Told, same_mode};
use crate::engine::native::error::Error;
use crate::engine::native::event::{Event, Item, Kind};
use crate::engine::native::packets::Packets;
use crate::engine::native::queue::Binding;
use crate::engine::native::raw::Raw;
use backtrail_pt::LastIp;
use backtrail_pt::packet::{ExecMode, IpPayload, Packet};

impl<'a> Events<'a> {
    /// Reads a PSB+ up to its end, whose packet is then the next one. What it says waits there.
    pub(super) fn header(&mut self) -> Result<(), Error> {
        if !self.queue.is_empty() {
            return Err(Error::BadContext);
        }
        self.last_ip.reset();
        self.ip = None;
        self.enabled = false;
        self.time.psb(self.offset);
        // Whether tracing is on is told first, and known last.
        let packet = self.offset;
        self.queue.push(Binding::PSBEND, Event::status(Kind::Disabled))?;
        let enabled = Kind::Enabled { packet };
        loop {
            self.fetch();
            let packet = self.packet?;
            if self.time.take(&packet, true)? {
                if let Packet::Cbr(_) = packet {
                    self.say(Kind::AtOnce)?;
                }
                continue;
            }
            match packet {
                Packet::Fup(payload) => self.header_fup(payload)?,
                Packet::ModeExec(mode) => self.header_mode(mode)?,
                Packet::ModeTsx { abort, .. } => self.say(Kind::Tsx { aborted: abort })?,
                Packet::Pip { .. } => self.say(Kind::AsyncPaging)?,
                Packet::Vmcs(_) => self.say(Kind::AsyncVmcs)?,
                Packet::Mnt(_) => self.queue.push(Binding::PSBEND, Event::new(Kind::AtOnce))?,
                Packet::PsbEnd | Packet::Ovf => {
                    let ended = packet == Packet::PsbEnd;
                    match self.queue.first(Binding::PSBEND) {
                        Some(event) if self.enabled => event.kind = enabled,
                        Some(_) if ended => {}
                        // The FUP may be among what was lost: it is not known whether tracing is on.
                        _ => drop(self.queue.take(Binding::PSBEND)),
                    }
                    return Ok(());
                }
                _ => return Err(Error::BadContext),
            }
        }
    }

    /// Passes a PSB+ that is next and says nothing but the time and what is known: that tracing is on, at the address `here`, in
    /// the same mode; and where it stands is not `held`. `None`: something else is next.
    pub fn pass_header(&mut self, raw: &mut Raw<'a>, here: u64, held: impl Fn(usize) -> bool) -> Option<()> {
        if raw.window() != Some(&[0x02, 0x82]) {
            return None;
        }
        let mut packets = self.packets.clone();
        packets.seek(raw.offset);
        let Ok(Packet::Psb) = packets.next() else {
            return None;
        };
        if held(packets.begin()) {
            return None;
        }
        let mut time = self.time.clone();
        time.psb(packets.begin());
        let (mut last_ip, mut ip) = (LastIp::default(), None);
        loop {
            let packet = packets.next().ok()?;
            if time.take(&packet, true).ok()? {
                continue;
            }
            match packet {
                Packet::Fup(payload) if ip.is_none() => ip = Some(last_ip.decode(payload)?.0),
                Packet::ModeExec(mode) if self.mode.is_some_and(|known| same_mode(known, mode)) => {}
                Packet::PsbEnd => break,
                _ => return None,
            }
        }
        let behind = Raw::new(packets.trace(), packets.offset(), last_ip);
        // Erratum BDM70: behind a FUP that is wrong comes no packet of a branch.
        if ip != Some(here) || self.errata.bdm70 && !behind.is_at_branch() {
            return None;
        }
        (self.time, self.ip) = (time, ip);
        *raw = behind;
        Some(())
    }

    fn say(&mut self, kind: Kind) -> Result<(), Error> {
        self.queue.push(Binding::PSBEND, Event::status(kind))
    }

    fn header_fup(&mut self, payload: IpPayload) -> Result<(), Error> {
        self.enabled = payload != IpPayload::Suppressed && !self.bdm70()?;
        if self.enabled {
            self.read_ip(payload);
        }
        Ok(())
    }

    fn header_mode(&mut self, mode: ExecMode) -> Result<(), Error> {
        if self.mode.is_some_and(|known| !same_mode(known, mode)) {
            return Err(Error::BadStatus);
        }
        self.mode.get_or_insert(mode);
        self.say(Kind::ExecMode(mode))
    }

    /// Erratum BDM70: the FUP is wrong where TIP.PGE follows.
    fn bdm70(&self) -> Result<bool, Error> {
        if !self.errata.bdm70 {
            return Ok(false);
        }
        let mut ahead = self.packets.clone();
        loop {
            match ahead.next() {
                Err(Error::End) => return Ok(false),
                Err(error) => return Err(error),
                Ok(Packet::TipPge(_)) => return Ok(true),
                Ok(
                    Packet::Tsc(_)
                    | Packet::Cbr(_)
                    | Packet::PsbEnd
                    | Packet::Pip { .. }
                    | Packet::ModeExec(_)
                    | Packet::ModeTsx { .. }
                    | Packet::Vmcs(_)
                    | Packet::Tma { .. }
                    | Packet::Mtc(_)
                    | Packet::Cyc(_)
                    | Packet::Mnt(_),
                ) => {}
                Ok(_) => return Ok(false),
            }
        }
    }

    /// The next thing that a PSB+ said, at its end.
    pub(super) fn header_event(&mut self) -> Result<Told, Error> {
        let Some(event) = self.queue.take(Binding::PSBEND) else {
            return Ok(Told::Nothing);
        };
        let ip = match event.kind {
            Kind::Disabled | Kind::AtOnce => None,
            _ => self.ip,
        };
        Ok(Told::More(Item::Event(self.stamped(Event { ip, ..event }))))
    }
}

/// The FUP of the PSB+ that `packets` stands in; `None`: it has none.
pub(super) fn find_fup(packets: &Packets<'_>) -> Result<Option<IpPayload>, Error> {
    let mut ahead = packets.clone();
    loop {
        match ahead.next()? {
            Packet::Fup(payload) => return Ok(Some(payload)),
            Packet::PsbEnd | Packet::Ovf => return Ok(None),
            Packet::ModeExec(_)
            | Packet::ModeTsx { .. }
            | Packet::Pip { .. }
            | Packet::Vmcs(_)
            | Packet::Mnt(_)
            | Packet::Tsc(_)
            | Packet::Cbr(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_) => {}
            _ => return Err(Error::BadContext),
        }
    }
}
