//! Packets to events: which packets belong together (SDM volume 3, "Packet Binding", "Packet Sequences").
//!
//! It reads one packet further than what it has told, as libipt does: where it stands when the flow is
//! lost decides which PSB is next.

mod addresses;
mod event_trace;
mod header;
mod overflow;

use super::errata::Errata;
use super::error::Error;
use super::event::{Event, Item, Kind};
use super::notes::{Notes, Writer};
use super::packets::Packets;
use super::queue::{Binding, Queue};
use super::raw::Raw;
use super::time::Time;
use super::timekeeper::{Timekeeper, When};
use crate::Config;
use backtrail_pt::packet::{ExecMode, IpPayload, Packet, Payload};
use backtrail_pt::{LastIp, Parser};

/// Reads a trace as events.
#[derive(Clone)]
pub(super) struct Events<'a> {
    packets: Packets<'a>,
    errata: Errata,
    time: Timekeeper,
    queue: Queue,
    /// The packet that is next, or why there is none.
    packet: Result<Packet, Error>,
    /// Where it begins.
    offset: usize,
    last_ip: LastIp,
    /// Where the packet of the last item told begins, and the last IP before it.
    told: (usize, LastIp),
    /// The address of the last packet that has one.
    ip: Option<u64>,
    /// Tracing is on.
    enabled: bool,
    /// The packet has been told of, and stays for the events that bind to it.
    bound: bool,
    mode: Option<ExecMode>,
}

/// What a packet gave.
enum Told {
    /// An item, and the packet is done with.
    Done(Item),
    /// An item, and there may be more in it.
    More(Item),
    /// Nothing, or nothing more.
    Nothing,
}

impl<'a> Events<'a> {
    pub fn new(trace: &'a [u8], errata: Errata, config: &Config) -> Self {
        Self {
            packets: Packets::new(trace, errata),
            errata,
            time: Timekeeper::Now(Time::new(config.timing, errata.skl168)),
            queue: Queue::default(),
            packet: Err(Error::End),
            offset: 0,
            last_ip: LastIp::default(),
            told: (0, LastIp::default()),
            ip: None,
            enabled: false,
            bound: false,
            mode: None,
        }
    }

    /// The mode that it knows.
    pub fn mode(&self) -> Option<ExecMode> {
        self.mode
    }

    /// The time where it stands.
    pub fn when(&self) -> Option<When> {
        self.time.when()
    }

    /// From here on what tells the time is written down, over these notes.
    pub fn write_over(&mut self, notes: Notes) {
        self.time = Timekeeper::Later(Writer::new(notes));
    }

    /// What was written since.
    pub fn take_notes(&mut self) -> Notes {
        match std::mem::replace(&mut self.time, Timekeeper::Later(Writer::default())) {
            Timekeeper::Later(writer) => writer.finish(),
            Timekeeper::Now(_) => Notes::default(),
        }
    }

    /// Offset behind the last packet read.
    pub fn offset(&self) -> usize {
        self.packets.offset()
    }

    /// Where decoding began last.
    pub fn sync_offset(&self) -> Option<usize> {
        self.packets.sync_offset()
    }

    /// Forgets everything but the time's parameters.
    fn reset(&mut self) {
        self.queue.clear();
        (self.packet, self.enabled, self.bound, self.mode) = (Err(Error::End), false, false, None);
        self.last_ip.reset();
        self.ip = None;
    }

    /// Begins at the next PSB, of which the PSB+ is read.
    pub fn sync_forward(&mut self) -> Result<(), Error> {
        self.time.reset();
        self.sync()
    }

    /// Begins at the PSB at `offset`, or at the next where none is.
    pub fn sync_at(&mut self, offset: usize) -> Result<(), Error> {
        self.packets.begin_at(offset);
        self.sync()
    }

    /// Has the PSB at `psb` be the next to begin at, when it is not in front of what was `read`.
    pub fn back_to(&mut self, psb: usize, read: usize) -> bool {
        self.packets.back_to(psb, read)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.reset();
        self.packets.sync_forward()?;
        self.fetch();
        match self.packet? {
            Packet::Psb => self.header(),
            _ => Err(Error::BadContext),
        }
    }

    /// The next item.
    pub fn next(&mut self) -> Result<Item, Error> {
        loop {
            self.told = (self.offset, self.last_ip);
            match self.tell()? {
                Told::Done(item) => {
                    self.fetch();
                    return Ok(item);
                }
                Told::More(item) => return Ok(item),
                Told::Nothing => {
                    self.bound = false;
                    self.fetch();
                }
            }
        }
    }

    /// From the last item on, when that is of a branch and nothing waits for a packet behind it.
    pub fn raw(&self) -> Option<Raw<'a>> {
        let (offset, last_ip) = self.told;
        (self.queue.is_empty() && self.enabled).then(|| Raw::new(self.packets.trace(), offset, last_ip))
    }

    /// Reads a packet of the time raw; says whether one was next that needs no closer look.
    pub fn take_time(&mut self, raw: &mut Raw<'a>) -> bool {
        let mut parser = Parser::at(self.packets.trace(), raw.offset);
        let Some(Ok((_, packet @ (Packet::Mtc(_) | Packet::Cyc(_) | Packet::Tsc(_))))) = parser.next() else {
            return false;
        };
        // The second byte of a CYC may be an OVF's.
        if self.errata.skd007 && matches!(packet, Packet::Cyc(_)) {
            return false;
        }
        let mut time = self.time.clone();
        if time.take(&packet, false).is_err() {
            return false;
        }
        self.time = time;
        raw.offset = parser.offset();
        true
    }

    /// Goes on behind what was read raw.
    pub fn resume(&mut self, raw: Raw<'a>) {
        self.last_ip = raw.last_ip();
        self.bound = false;
        self.packets.seek(raw.offset);
        self.fetch();
    }

    fn fetch(&mut self) {
        self.packet = self.packets.next();
        self.offset = self.packets.begin();
    }

    /// What the packet tells.
    fn tell(&mut self) -> Result<Told, Error> {
        let packet = self.packet?;
        if self.time.take(&packet, false)? {
            return Ok(match packet {
                Packet::Cbr(_) => self.done(Event::new(Kind::AtOnce)),
                _ => Told::Nothing,
            });
        }
        match packet {
            Packet::TntShort(tnt) | Packet::TntLong(tnt) => {
                if !self.enabled {
                    return Err(Error::BadContext);
                }
                Ok(Told::Done(Item::Tnt(tnt)))
            }
            Packet::Fup(ip) => self.fup(ip),
            Packet::Tip(ip) => self.tip(ip),
            Packet::TipPge(ip) => self.tip_pge(ip),
            Packet::TipPgd(ip) => self.tip_pgd(ip),
            Packet::Psb => {
                self.header()?;
                self.tell()
            }
            Packet::PsbEnd => self.header_event(),
            Packet::Ovf => self.overflow(),
            Packet::ModeExec(mode) => self.exec_mode(mode),
            Packet::ModeTsx { in_tx: _, abort } => self.transaction(abort),
            Packet::Pip { .. } => self.paging(),
            Packet::Vmcs(_) => self.vmcs(),
            Packet::TraceStop => Ok(self.done(Event::new(Kind::Stop))),
            Packet::Mnt(_) | Packet::Pwre { .. } | Packet::Pwrx { .. } => {
                Ok(self.done(Event::new(Kind::AtOnce)))
            }
            Packet::Ptw { value, ip } => {
                let value = match value {
                    Payload::Four(value) => u64::from(value),
                    Payload::Eight(value) => value,
                };
                self.with_own_fup(ip, Kind::Ptwrite { value })
            }
            Packet::Mwait { .. } => self.wait(Binding::EXSTOP, Kind::Mwait),
            Packet::Exstop { ip } => self.exstop(ip),
            Packet::Cfe { ip, kind, .. } => self.control_flow_event(ip, kind),
            Packet::Evd { kind, .. } => self.event_data(kind),
            // Blocks of data tell nothing of the flow; the FUP at their end belongs to them.
            Packet::Bep { ip: true } => self.wait(Binding::OWN_FUP, Kind::Ignore),
            _ => Ok(Told::Nothing),
        }
    }

    /// An event by itself, with the time now.
    fn done(&self, event: Event) -> Told {
        Told::Done(Item::Event(self.stamped(event)))
    }

    fn stamped(&self, event: Event) -> Event {
        Event {
            when: self.time.when(),
            ..event
        }
    }

    /// An event that binds to a later packet.
    fn wait(&mut self, binding: Binding, kind: Kind) -> Result<Told, Error> {
        self.queue.push(binding, Event::new(kind))?;
        Ok(Told::Nothing)
    }

    /// An event that binds to the FUP behind it, if it says that there is one.
    fn with_own_fup(&mut self, ip: bool, kind: Kind) -> Result<Told, Error> {
        if ip {
            self.wait(Binding::OWN_FUP, kind)
        } else {
            Ok(self.done(Event::new(kind)))
        }
    }

    fn exec_mode(&mut self, mode: ExecMode) -> Result<Told, Error> {
        let same = self.mode.is_some_and(|known| same_mode(known, mode));
        self.mode = Some(mode);
        // Where nothing changes, it takes its packet all the same.
        let kind = if same { Kind::Ignore } else { Kind::ExecMode(mode) };
        self.wait(Binding::TIP.or(Binding::OWN_FUP), kind)
    }

    fn transaction(&mut self, aborted: bool) -> Result<Told, Error> {
        let kind = Kind::Tsx { aborted };
        match (self.enabled, aborted) {
            (true, true) => self.wait(Binding::FUP, kind),
            (true, false) => self.wait(Binding::OWN_FUP, kind),
            (false, _) => Ok(self.done(Event::new(kind))),
        }
    }

    /// PIP is of the instruction that writes CR3, or of the asynchronous branch that is under way.
    fn paging(&mut self) -> Result<Told, Error> {
        if self.branch_waits() {
            return self.wait(Binding::TIP, Kind::AsyncPaging);
        }
        Ok(self.done(Event::new(Kind::Paging)))
    }

    /// VMCS comes before the PIP of the same branch, whatever the order of the packets.
    fn vmcs(&mut self) -> Result<Told, Error> {
        let paging = |kind: &Kind| *kind == Kind::AsyncPaging;
        if let Some(event) = self.queue.find(Binding::TIP, paging) {
            let moved = std::mem::replace(event, Event::new(Kind::AsyncVmcs));
            self.queue.push(Binding::TIP, moved)?;
            return Ok(Told::Nothing);
        }
        if self.branch_waits() {
            return self.wait(Binding::TIP, Kind::AsyncVmcs);
        }
        Ok(self.done(Event::new(Kind::Vmcs)))
    }

    fn branch_waits(&mut self) -> bool {
        let branch = |kind: &Kind| matches!(kind, Kind::AsyncBranch { .. });
        self.queue.find(Binding::TIP, branch).is_some()
    }

    /// MWAIT and EXSTOP bind to the same FUP, or both to none.
    fn exstop(&mut self, ip: bool) -> Result<Told, Error> {
        if let Some(mwait) = self.queue.take(Binding::EXSTOP) {
            if !ip {
                return Ok(Told::More(Item::Event(self.stamped(mwait))));
            }
            self.queue.push(Binding::OWN_FUP, mwait)?;
        }
        self.with_own_fup(ip, Kind::Exstop)
    }

    /// Takes an address from a packet.
    fn read_ip(&mut self, payload: IpPayload) {
        self.ip = self.last_ip.decode(payload).map(|ip| ip.0);
    }
}

/// Same code, whatever the interrupt flag.
fn same_mode(one: ExecMode, other: ExecMode) -> bool {
    (one.long, one.default_32) == (other.long, other.default_32)
}
