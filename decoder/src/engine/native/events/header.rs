//! PSB+: the packets that repeat the current state (SDM volume 3, "PSB+").

use super::{Events, PacketResult, same_mode};
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent, TraceItem};
use crate::engine::native::event_queue::Binding;
use crate::engine::native::packets::BranchPackets;
use crate::engine::native::packets::PacketCursor;
use backtrail_pt::LastIp;
use backtrail_pt::packet::{ExecMode, IpPayload, Packet};

impl<'a> Events<'a> {
    /// Reads a PSB+ up to its last packet, which is then the next one. Its events are queued there.
    pub(super) fn header(&mut self) -> Result<(), Error> {
        if !self.queue.is_empty() {
            return Err(Error::BadContext);
        }
        self.last_ip.reset();
        self.ip = None;
        self.enabled = false;
        self.time.psb(self.offset);
        // The first event reports whether tracing is enabled, which is known last.
        let packet = self.offset;
        self.queue
            .push(Binding::PSBEND, TraceEvent::status(EventKind::Disabled))?;
        let enabled = EventKind::Enabled { packet };
        loop {
            self.fetch();
            let packet = self.packet?;
            if self.time.apply_packet(&packet, true)? {
                if let Packet::Cbr(_) = packet {
                    self.push_status(EventKind::AtOnce)?;
                }
                continue;
            }
            match packet {
                Packet::Fup(payload) => self.header_fup(payload)?,
                Packet::ModeExec(mode) => self.header_mode(mode)?,
                Packet::ModeTsx { abort, .. } => self.push_status(EventKind::Tsx { aborted: abort })?,
                Packet::Pip { .. } => self.push_status(EventKind::AsyncPaging)?,
                Packet::Vmcs(_) => self.push_status(EventKind::AsyncVmcs)?,
                Packet::Mnt(_) => self
                    .queue
                    .push(Binding::PSBEND, TraceEvent::new(EventKind::AtOnce))?,
                Packet::PsbEnd | Packet::Ovf => {
                    let ended = packet == Packet::PsbEnd;
                    match self.queue.first(Binding::PSBEND) {
                        Some(event) if self.enabled => event.kind = enabled,
                        Some(_) if ended => {}
                        // The FUP may have been lost: it is unknown whether tracing is enabled.
                        _ => drop(self.queue.take(Binding::PSBEND)),
                    }
                    return Ok(());
                }
                _ => return Err(Error::BadContext),
            }
        }
    }

    /// Skips a PSB+ that is next and repeats only known state: tracing is enabled at address `here`
    /// in the same mode. Its offset must not be `held`. `None`: something else is next.
    pub fn pass_header(
        &mut self,
        branches: &mut BranchPackets<'a>,
        here: u64,
        held: impl Fn(usize) -> bool,
    ) -> Option<()> {
        if branches.window() != Some(&[0x02, 0x82]) {
            return None;
        }
        let mut packets = self.packets.clone();
        packets.seek(branches.offset);
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
            if time.apply_packet(&packet, true).ok()? {
                continue;
            }
            match packet {
                Packet::Fup(payload) if ip.is_none() => ip = Some(last_ip.decode(payload)?.0),
                Packet::ModeExec(mode) if self.mode.is_some_and(|known| same_mode(known, mode)) => {}
                Packet::PsbEnd => break,
                _ => return None,
            }
        }
        let after = BranchPackets::new(packets.trace(), packets.offset(), last_ip);
        // Erratum BDM70: no branch packet follows a wrong FUP.
        if ip != Some(here) || self.errata.bdm70 && !after.is_at_branch() {
            return None;
        }
        (self.time, self.ip) = (time, ip);
        *branches = after;
        Some(())
    }

    fn push_status(&mut self, kind: EventKind) -> Result<(), Error> {
        self.queue.push(Binding::PSBEND, TraceEvent::status(kind))
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
        self.push_status(EventKind::ExecMode(mode))
    }

    /// Erratum BDM70: the FUP is wrong if TIP.PGE follows.
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

    /// Returns the next event of a PSB+, at its last packet.
    pub(super) fn header_event(&mut self) -> Result<PacketResult, Error> {
        let Some(event) = self.queue.take(Binding::PSBEND) else {
            return Ok(PacketResult::Nothing);
        };
        let ip = match event.kind {
            EventKind::Disabled | EventKind::AtOnce => None,
            _ => self.ip,
        };
        Ok(PacketResult::Partial(TraceItem::Event(
            self.with_time(TraceEvent { ip, ..event }),
        )))
    }
}

/// Returns the FUP of the PSB+ that `packets` is in; `None`: it has none.
pub(super) fn find_fup(packets: &PacketCursor<'_>) -> Result<Option<IpPayload>, Error> {
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
