//! Converts packets to events: binds packets that belong together (SDM volume 3, "Packet Binding",
//! "Packet Sequences").
//!
//! The reader is one packet ahead of the returned items, as in libipt. The read position at an
//! error decides which PSB is next.

mod addresses;
mod event_trace;
mod header;
mod overflow;

use super::errata::Errata;
use super::error::Error;
use super::event::{EventKind, TraceEvent, TraceItem};
use super::event_queue::{Binding, EventQueue};
use super::packets::BranchPackets;
use super::packets::PacketCursor;
use super::time::TscEstimator;
use super::time::{EventTime, TimeTracker};
use super::time::{LogWriter, TimingLog};
use crate::Config;
use backtrail_pt::packet::{ExecMode, IpPayload, Packet, Payload};
use backtrail_pt::{LastIp, Parser};

/// Reads a trace as events.
#[derive(Clone)]
pub(super) struct Events<'a> {
    packets: PacketCursor<'a>,
    errata: Errata,
    time: TimeTracker,
    queue: EventQueue,
    /// The next packet, or the error in place of it.
    packet: Result<Packet, Error>,
    /// The offset of `packet`.
    offset: usize,
    last_ip: LastIp,
    /// The offset of the packet of the last returned item, and the last IP before it.
    last_item: (usize, LastIp),
    /// The address of the last packet that has one.
    ip: Option<u64>,
    /// Tracing is enabled.
    enabled: bool,
    /// The packet's own item was returned; it stays for the events that bind to it.
    bound: bool,
    mode: Option<ExecMode>,
}

/// The result of processing a packet.
enum PacketResult {
    /// An item; the packet is done.
    Complete(TraceItem),
    /// An item; the packet may give more.
    Partial(TraceItem),
    /// No item, or no further one.
    Nothing,
}

impl<'a> Events<'a> {
    pub fn new(trace: &'a [u8], errata: Errata, config: &Config) -> Self {
        Self {
            packets: PacketCursor::new(trace, errata),
            errata,
            time: TimeTracker::Live(TscEstimator::new(config.timing, errata.skl168)),
            queue: EventQueue::default(),
            packet: Err(Error::End),
            offset: 0,
            last_ip: LastIp::default(),
            last_item: (0, LastIp::default()),
            ip: None,
            enabled: false,
            bound: false,
            mode: None,
        }
    }

    /// Returns the current execution mode.
    pub fn mode(&self) -> Option<ExecMode> {
        self.mode
    }

    /// Returns the current time.
    pub fn time(&self) -> Option<EventTime> {
        self.time.now()
    }

    /// From here on, records timing packets instead of computing the time. Overwrites `log`.
    pub fn defer_time(&mut self, log: TimingLog) {
        self.time = TimeTracker::Deferred(LogWriter::new(log));
    }

    /// Keeps the timing packets that a clone read ahead, which is about to be dropped.
    pub fn keep_lookahead(&mut self, ahead: &Self) {
        self.time.keep_lookahead(&ahead.time);
    }

    /// Returns the timing packets recorded so far.
    pub fn take_timing_log(&mut self) -> TimingLog {
        match std::mem::replace(&mut self.time, TimeTracker::Deferred(LogWriter::default())) {
            TimeTracker::Deferred(writer) => writer.finish(),
            TimeTracker::Live(_) => TimingLog::default(),
        }
    }

    /// Returns the offset after the last packet read.
    pub fn offset(&self) -> usize {
        self.packets.offset()
    }

    /// Returns the offset of the packet of the last returned item.
    pub fn item_offset(&self) -> usize {
        self.last_item.0
    }

    /// Returns the offset of the next packet, or of the error in place of it.
    pub fn packet_offset(&self) -> usize {
        self.offset
    }

    /// Returns the offset of the PSB at which decoding last started.
    pub fn sync_offset(&self) -> Option<usize> {
        self.packets.sync_offset()
    }

    /// Resets the state, except for the time.
    fn reset(&mut self) {
        self.queue.clear();
        (self.packet, self.enabled, self.bound, self.mode) = (Err(Error::End), false, false, None);
        self.last_ip.reset();
        self.ip = None;
    }

    /// Starts at the next PSB and reads its PSB+.
    pub fn sync_forward(&mut self) -> Result<(), Error> {
        self.time.reset();
        self.sync()
    }

    /// Starts at the first PSB at or after `offset`, and reads its PSB+.
    pub fn sync_from(&mut self, offset: usize) -> Result<(), Error> {
        self.time.reset();
        self.reset();
        self.packets.sync_from(offset)?;
        self.read_header()
    }

    /// Starts at the PSB at `offset`, or at the next one if there is none.
    pub fn sync_at(&mut self, offset: usize) -> Result<(), Error> {
        self.packets.begin_at(offset);
        self.sync()
    }

    /// Makes the PSB at `psb` the next to start at, unless it is before `read`. Returns whether it
    /// does.
    pub fn rewind_to(&mut self, psb: usize, read: usize) -> bool {
        self.packets.rewind_to(psb, read)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.reset();
        self.packets.sync_forward()?;
        self.read_header()
    }

    /// Reads the PSB+ that is next.
    fn read_header(&mut self) -> Result<(), Error> {
        self.fetch();
        match self.packet? {
            Packet::Psb => self.header(),
            _ => Err(Error::BadContext),
        }
    }

    /// Returns the next item.
    pub fn next(&mut self) -> Result<TraceItem, Error> {
        loop {
            self.last_item = (self.offset, self.last_ip);
            match self.process_packet()? {
                PacketResult::Complete(item) => {
                    self.fetch();
                    return Ok(item);
                }
                PacketResult::Partial(item) => return Ok(item),
                PacketResult::Nothing => {
                    self.bound = false;
                    self.fetch();
                }
            }
        }
    }

    /// Returns a reader from the last item on, if it is a branch and no event waits for a later
    /// packet.
    pub fn branch_packets(&self) -> Option<BranchPackets<'a>> {
        let (offset, last_ip) = self.last_item;
        (self.queue.is_empty() && self.enabled)
            .then(|| BranchPackets::new(self.packets.trace(), offset, last_ip))
    }

    /// Applies a timing packet that is next in `branches`. Returns whether one was next that needs
    /// no binding.
    pub fn apply_time_packet(&mut self, branches: &mut BranchPackets<'a>) -> bool {
        let mut parser = Parser::at(self.packets.trace(), branches.offset);
        let Some(Ok((_, packet @ (Packet::Mtc(_) | Packet::Cyc(_) | Packet::Tsc(_))))) = parser.next() else {
            return false;
        };
        // The second byte of a CYC may belong to an OVF.
        if self.errata.skd007 && matches!(packet, Packet::Cyc(_)) {
            return false;
        }
        let mut time = self.time.clone();
        if time.apply_packet(&packet, false).is_err() {
            return false;
        }
        self.time = time;
        branches.offset = parser.offset();
        true
    }

    /// Resumes after the packets read by `branches`.
    pub fn resume(&mut self, branches: BranchPackets<'a>) {
        self.last_ip = branches.last_ip();
        self.bound = false;
        self.packets.seek(branches.offset);
        self.fetch();
    }

    fn fetch(&mut self) {
        self.packet = self.packets.next();
        self.offset = self.packets.begin();
    }

    /// Processes the next packet.
    fn process_packet(&mut self) -> Result<PacketResult, Error> {
        let packet = self.packet?;
        if self.time.apply_packet(&packet, false)? {
            return Ok(match packet {
                Packet::Cbr(_) => self.event_now(TraceEvent::new(EventKind::AtOnce)),
                _ => PacketResult::Nothing,
            });
        }
        match packet {
            Packet::TntShort(tnt) | Packet::TntLong(tnt) => {
                if !self.enabled {
                    return Err(Error::BadContext);
                }
                Ok(PacketResult::Complete(TraceItem::Tnt(tnt)))
            }
            Packet::Fup(ip) => self.fup(ip),
            Packet::Tip(ip) => self.tip(ip),
            Packet::TipPge(ip) => self.tip_pge(ip),
            Packet::TipPgd(ip) => self.tip_pgd(ip),
            Packet::Psb => {
                self.header()?;
                self.process_packet()
            }
            Packet::PsbEnd => self.header_event(),
            Packet::Ovf => self.overflow(),
            Packet::ModeExec(mode) => self.exec_mode(mode),
            Packet::ModeTsx { in_tx: _, abort } => self.transaction(abort),
            Packet::Pip { .. } => self.paging(),
            Packet::Vmcs(_) => self.vmcs(),
            Packet::TraceStop => Ok(self.event_now(TraceEvent::new(EventKind::Stop))),
            Packet::Mnt(_) | Packet::Pwre { .. } | Packet::Pwrx { .. } => {
                Ok(self.event_now(TraceEvent::new(EventKind::AtOnce)))
            }
            Packet::Ptw { value, ip } => {
                let value = match value {
                    Payload::Four(value) => u64::from(value),
                    Payload::Eight(value) => value,
                };
                self.with_own_fup(ip, EventKind::Ptwrite { value })
            }
            Packet::Mwait { .. } => self.wait(Binding::EXSTOP, EventKind::Mwait),
            Packet::Exstop { ip } => self.exstop(ip),
            Packet::Cfe { ip, kind, .. } => self.control_flow_event(ip, kind),
            Packet::Evd { kind, .. } => self.event_data(kind),
            Packet::Trig { instructions, ip, .. } => self.trigger(instructions, ip),
            // Data of a block does not concern the flow. The FUP at its end belongs to it.
            Packet::Bep { ip: true } => self.wait(Binding::OWN_FUP, EventKind::Ignore),
            _ => Ok(PacketResult::Nothing),
        }
    }

    /// Returns an unbound event with the current time.
    fn event_now(&self, event: TraceEvent) -> PacketResult {
        PacketResult::Complete(TraceItem::Event(self.with_time(event)))
    }

    fn with_time(&self, event: TraceEvent) -> TraceEvent {
        TraceEvent {
            time: self.time.now(),
            ..event
        }
    }

    /// Queues an event that binds to a later packet.
    fn wait(&mut self, binding: Binding, kind: EventKind) -> Result<PacketResult, Error> {
        self.queue.push(binding, TraceEvent::new(kind))?;
        Ok(PacketResult::Nothing)
    }

    /// Queues an event for its own FUP if `ip` is set; else returns the event now.
    fn with_own_fup(&mut self, ip: bool, kind: EventKind) -> Result<PacketResult, Error> {
        if ip {
            self.wait(Binding::OWN_FUP, kind)
        } else {
            Ok(self.event_now(TraceEvent::new(kind)))
        }
    }

    fn exec_mode(&mut self, mode: ExecMode) -> Result<PacketResult, Error> {
        let same = self.mode.is_some_and(|known| same_mode(known, mode));
        self.mode = Some(mode);
        // An unchanged mode still consumes its packet.
        let kind = if same {
            EventKind::Ignore
        } else {
            EventKind::ExecMode(mode)
        };
        self.wait(Binding::TIP.or(Binding::OWN_FUP), kind)
    }

    fn transaction(&mut self, aborted: bool) -> Result<PacketResult, Error> {
        let kind = EventKind::Tsx { aborted };
        match (self.enabled, aborted) {
            (true, true) => self.wait(Binding::FUP, kind),
            (true, false) => self.wait(Binding::OWN_FUP, kind),
            (false, _) => Ok(self.event_now(TraceEvent::new(kind))),
        }
    }

    /// A PIP belongs to the instruction that writes CR3, or to the pending asynchronous branch.
    fn paging(&mut self) -> Result<PacketResult, Error> {
        if self.branch_waits() {
            return self.wait(Binding::TIP, EventKind::AsyncPaging);
        }
        Ok(self.event_now(TraceEvent::new(EventKind::Paging)))
    }

    /// A VMCS precedes the PIP of the same branch, whatever the order of the packets.
    fn vmcs(&mut self) -> Result<PacketResult, Error> {
        let paging = |kind: &EventKind| *kind == EventKind::AsyncPaging;
        if let Some(event) = self.queue.find(Binding::TIP, paging) {
            let moved = std::mem::replace(event, TraceEvent::new(EventKind::AsyncVmcs));
            self.queue.push(Binding::TIP, moved)?;
            return Ok(PacketResult::Nothing);
        }
        if self.branch_waits() {
            return self.wait(Binding::TIP, EventKind::AsyncVmcs);
        }
        Ok(self.event_now(TraceEvent::new(EventKind::Vmcs)))
    }

    fn branch_waits(&mut self) -> bool {
        let branch = |kind: &EventKind| matches!(kind, EventKind::AsyncBranch { .. });
        self.queue.find(Binding::TIP, branch).is_some()
    }

    /// MWAIT and EXSTOP bind to the same FUP, or both to none.
    fn exstop(&mut self, ip: bool) -> Result<PacketResult, Error> {
        if let Some(mwait) = self.queue.take(Binding::EXSTOP) {
            if !ip {
                return Ok(PacketResult::Partial(TraceItem::Event(self.with_time(mwait))));
            }
            self.queue.push(Binding::OWN_FUP, mwait)?;
        }
        self.with_own_fup(ip, EventKind::Exstop)
    }

    /// TRIG binds to its own FUP, or to the instruction that it counts to. Without either it is not
    /// bound. While tracing is disabled there is nothing to count.
    fn trigger(&mut self, instructions: Option<u16>, ip: bool) -> Result<PacketResult, Error> {
        let counts = instructions.is_some_and(|count| count > 0);
        if ip && (counts || instructions.is_none()) || counts && !self.enabled {
            return Err(Error::BadPacket);
        }
        let instructions = instructions.unwrap_or(0);
        self.with_own_fup(ip, EventKind::Trigger { instructions })
    }

    /// Updates the last IP from a packet.
    fn read_ip(&mut self, payload: IpPayload) {
        self.ip = self.last_ip.decode(payload).map(|ip| ip.0);
    }
}

/// Returns whether the modes are equal apart from the interrupt flag.
fn same_mode(one: ExecMode, other: ExecMode) -> bool {
    (one.long, one.default_32) == (other.long, other.default_32)
}
