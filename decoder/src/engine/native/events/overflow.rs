//! OVF: where the flow resumes after lost packets (SDM volume 3, "Overflow Packet"; errata SKD010,
//! APL11, APL12).

use super::{Events, PacketResult, header};
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent, TraceItem};
use crate::engine::native::event_queue::Binding;
use crate::engine::native::packets::PacketCursor;
use crate::engine::native::time::TimeTracker;
use backtrail_pt::packet::{IpPayload, Packet};

/// The outcome of an erratum's workaround.
enum OverflowResolution {
    /// The event; the next packet must still be processed.
    PacketKept(TraceEvent),
    /// The event; the next packet is done.
    PacketDone(TraceEvent),
    /// The erratum does not apply.
    NotApplicable,
}

impl Events<'_> {
    pub(super) fn overflow(&mut self) -> Result<PacketResult, Error> {
        // An OVF ends a PSB+ like PSBEND.
        if let last_item @ (PacketResult::Complete(_) | PacketResult::Partial(_)) = self.header_event()? {
            return Ok(last_item);
        }
        let packet = self.offset;
        self.reset();
        self.time.overflow();
        let event = self.with_time(TraceEvent::new(EventKind::Overflow { packet }));
        let found = match find_fup(&self.packets) {
            Ok(Some(after)) => {
                if self.errata.apl12
                    && let OverflowResolution::PacketDone(event) = self.apl12(after, &event)?
                {
                    return Ok(PacketResult::Complete(TraceItem::Event(event)));
                }
                self.queue.push(Binding::OWN_FUP, event)?;
                return Ok(PacketResult::Nothing);
            }
            other => other.map(drop),
        };
        if self.errata.skd010 {
            match self.skd010(&event)? {
                OverflowResolution::PacketKept(event) => {
                    return Ok(PacketResult::Partial(TraceItem::Event(event)));
                }
                OverflowResolution::PacketDone(event) => {
                    return Ok(PacketResult::Complete(TraceItem::Event(event)));
                }
                OverflowResolution::NotApplicable => {}
            }
        }
        if self.errata.apl11
            && found == Err(Error::BadContext)
            && let OverflowResolution::PacketDone(event) = self.apl11(&event)?
        {
            return Ok(PacketResult::Complete(TraceItem::Event(event)));
        }
        match found {
            Err(error) if error != Error::End => Err(error),
            _ => Ok(PacketResult::Complete(TraceItem::Event(event))),
        }
    }

    /// Erratum SKD010: the FUP is missing. Later packets show whether tracing is enabled, and
    /// where.
    fn skd010(&mut self, event: &TraceEvent) -> Result<OverflowResolution, Error> {
        let mut time = self.time.clone();
        let resolution = self.skd010_after(event, &mut time);
        self.keep_time_of(resolution, &time)
    }

    /// Keeps the timing packets that a workaround read ahead, unless they are done.
    fn keep_time_of(
        &mut self,
        resolution: Result<OverflowResolution, Error>,
        time: &TimeTracker,
    ) -> Result<OverflowResolution, Error> {
        if matches!(resolution, Err(_) | Ok(OverflowResolution::NotApplicable)) {
            self.time.keep_lookahead(time);
        }
        resolution
    }

    /// Reads ahead for [`Self::skd010`], with the time that follows.
    fn skd010_after(
        &mut self,
        event: &TraceEvent,
        time: &mut TimeTracker,
    ) -> Result<OverflowResolution, Error> {
        let mut ahead = self.packets.clone();
        let mut transaction: Option<bool> = None;
        loop {
            let packet = match ahead.next() {
                Err(Error::End) => return Ok(OverflowResolution::NotApplicable),
                other => other?,
            };
            if time.apply_packet(&packet, false)? {
                continue;
            }
            match packet {
                Packet::TipPgd(_) => return Ok(self.off(event, ahead, packet, time.clone())),
                Packet::ModeTsx { .. } if transaction.is_some() => {
                    return Ok(OverflowResolution::NotApplicable);
                }
                Packet::ModeTsx { abort, .. } => transaction = Some(abort),
                Packet::Fup(ip) => {
                    if let Some(aborted) = transaction {
                        let transaction = TraceEvent::new(EventKind::Tsx { aborted });
                        self.queue.push(Binding::OWN_FUP, transaction)?;
                    }
                    return Ok(OverflowResolution::PacketKept(self.on(
                        event,
                        ahead,
                        packet,
                        ip,
                        time.clone(),
                    )));
                }
                Packet::Tip(ip) => {
                    return Ok(OverflowResolution::PacketDone(self.on(
                        event,
                        ahead,
                        packet,
                        ip,
                        time.clone(),
                    )));
                }
                Packet::Psb => {
                    return match header::find_fup(&ahead) {
                        Err(Error::End) | Ok(None) => Ok(OverflowResolution::NotApplicable),
                        Err(error) => Err(error),
                        Ok(Some(ip)) => Ok(OverflowResolution::PacketKept(self.on(
                            event,
                            ahead,
                            packet,
                            ip,
                            time.clone(),
                        ))),
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
                | Packet::Trig { .. }
                | Packet::Exstop { ip: false }
                | Packet::Ptw { ip: false, .. }
                | Packet::Cfe { ip: false, .. } => {}
                _ => return Ok(OverflowResolution::NotApplicable),
            }
        }
    }

    /// Erratum APL11: there is an extra TIP.PGD, after which tracing is disabled.
    fn apl11(&mut self, event: &TraceEvent) -> Result<OverflowResolution, Error> {
        let mut time = self.time.clone();
        let resolution = self.apl11_after(event, &mut time);
        self.keep_time_of(resolution, &time)
    }

    /// Reads ahead for [`Self::apl11`], with the time that follows.
    fn apl11_after(
        &mut self,
        event: &TraceEvent,
        time: &mut TimeTracker,
    ) -> Result<OverflowResolution, Error> {
        let mut ahead = self.packets.clone();
        loop {
            let packet = ahead.next()?;
            if time.apply_packet(&packet, false)? {
                continue;
            }
            match packet {
                Packet::TipPgd(_) => return Ok(self.off(event, ahead, packet, time.clone())),
                Packet::Mnt(_) | Packet::Cfe { .. } | Packet::Evd { .. } | Packet::Trig { .. } => {}
                _ => return Ok(OverflowResolution::NotApplicable),
            }
        }
    }

    /// Erratum APL12: the FUP, which ends before `after`, is superfluous: tracing is disabled.
    fn apl12(&mut self, after: usize, event: &TraceEvent) -> Result<OverflowResolution, Error> {
        let mut ahead = self.packets.clone();
        ahead.seek(after);
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
                return Ok(OverflowResolution::NotApplicable);
            }
            while self.packets.offset() < after {
                let packet = self.packets.next()?;
                self.time.apply_packet(&packet, false)?;
            }
            return Ok(OverflowResolution::PacketDone(TraceEvent {
                time: self.time.now(),
                ..event.clone()
            }));
        }
    }

    /// Continues after `packet` with tracing disabled.
    fn off(
        &mut self,
        event: &TraceEvent,
        at: PacketCursor<'_>,
        packet: Packet,
        time: TimeTracker,
    ) -> OverflowResolution {
        self.packets.seek(at.offset());
        (self.packet, self.time) = (Ok(packet), time);
        OverflowResolution::PacketDone(event.clone())
    }

    /// Continues at an address with tracing enabled.
    fn on(
        &mut self,
        event: &TraceEvent,
        at: PacketCursor<'_>,
        packet: Packet,
        ip: IpPayload,
        time: TimeTracker,
    ) -> TraceEvent {
        self.read_ip(ip);
        self.packets.seek(at.offset());
        (self.packet, self.time, self.enabled) = (Ok(packet), time, true);
        TraceEvent {
            ip: self.ip,
            ..event.clone()
        }
    }
}

/// Finds the FUP that an OVF binds to while tracing is enabled, and returns the offset after it.
/// `None`: other packets show that tracing was disabled.
fn find_fup(packets: &PacketCursor<'_>) -> Result<Option<usize>, Error> {
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
