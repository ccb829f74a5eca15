//! Encodes control flow as packets, as tracing hardware does, for a recorder without it.
//!
//! The stream describes user-only tracing of 64-bit code: TIP.PGD marks the entry to a system call,
//! and MODE.Exec and TIP.PGE its return. libipt decodes it. Source: SDM volume 3, "Intel Processor
//! Trace".
//!
//! The caller reports events in order: [`Encoder::start`], [`Encoder::enable`], then branches, and
//! [`Encoder::disable`] or [`Encoder::disable_async`] when execution leaves user code. Between
//! instructions it calls [`Encoder::psb`] if [`Encoder::psb_due`].

mod branches;
mod clock;
mod returns;

use crate::packet::{ExecMode, IpPayload, Packet, Payload};
use crate::wire::opcode;
use crate::{Avma, Tsc};
use branches::BranchState;
pub use branches::Branches;
use clock::PacketClock;
pub use clock::TimingOptions;

/// The options of an [`Encoder`].
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// The approximate number of bytes between two PSB packets: `IA32_RTIT_CTL.PSBFreq`.
    pub psb_period: usize,
    /// Compress returns that match a call into one TNT bit: `IA32_RTIT_CTL.DisRETC` = 0.
    pub compress_returns: bool,
    /// Combine up to 47 outcomes in a long TNT, as some processors do. Short TNTs of 6 outcomes
    /// never need more bytes in total.
    pub long_tnt: bool,
    /// The timing packets, if any.
    pub timing: Option<TimingOptions>,
}

impl Default for EncoderOptions {
    /// PSB every 2 KiB, compressed returns, short TNT, no timing packets.
    fn default() -> Self {
        Self {
            psb_period: 2048,
            compress_returns: true,
            long_tnt: false,
            timing: None,
        }
    }
}

/// Encodes a packet stream.
#[derive(Debug)]
pub struct Encoder {
    out: Vec<u8>,
    /// The number of bytes returned by [`Encoder::take`].
    taken: u64,
    /// The length of `out` at which a PSB is due.
    psb_at: usize,
    psb_period: usize,
    state: BranchState,
    clock: Option<PacketClock>,
    /// Whether time has passed since the last timing packet.
    stale: bool,
}

impl Encoder {
    /// Builds an empty stream, which [`Self::start`] begins.
    #[must_use]
    pub fn new(options: EncoderOptions) -> Self {
        Self {
            out: Vec::new(),
            taken: 0,
            psb_at: options.psb_period,
            psb_period: options.psb_period,
            state: BranchState::new(options.compress_returns, options.long_tnt),
            clock: options.timing.map(PacketClock::new),
            stale: false,
        }
    }

    /// Sets the time. An earlier time than before is ignored.
    ///
    /// Best called for each instruction: it writes the MTC packets that are due.
    pub fn set_time(&mut self, now: Tsc) {
        if self.clock.as_ref().is_some_and(|clock| clock.mtc_due(now)) {
            // The pending outcomes are earlier.
            self.flush();
        }
        if let Some(clock) = &mut self.clock {
            clock.advance(now, &mut self.out);
            self.stale = true;
        }
    }

    /// Writes the first PSB+, with tracing disabled.
    pub fn start(&mut self) {
        self.sync_point(None);
    }

    /// Returns whether a PSB is due, because the stream has grown by the PSB period.
    #[must_use]
    #[inline]
    pub fn psb_due(&self) -> bool {
        self.out.len() >= self.psb_at
    }

    /// Writes a PSB+ with tracing enabled, before the instruction at `ip` executes.
    pub fn psb(&mut self, ip: Avma) {
        self.sync_point(Some(ip));
    }

    fn sync_point(&mut self, ip: Option<Avma>) {
        self.flush();
        self.stamp();
        self.forget_returns();
        self.state.last_ip.reset();
        self.psb_at = self.out.len().saturating_add(self.psb_period);
        Packet::Psb.write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.header(&mut self.out);
        }
        Packet::ModeExec(ExecMode::LONG).write_to(&mut self.out);
        if let Some(ip) = ip {
            self.ip_packet(opcode::FUP, ip);
        }
        Packet::PsbEnd.write_to(&mut self.out);
    }

    /// Enters user code at `ip`: MODE.Exec, TIP.PGE.
    pub fn enable(&mut self, ip: Avma) {
        self.flush();
        self.forget_returns();
        self.stamp();
        if let Some(clock) = &mut self.clock {
            clock.on();
        }
        Packet::ModeExec(ExecMode::LONG).write_to(&mut self.out);
        self.ip_packet(opcode::TIP_PGE, ip);
    }

    /// Writes a value, as PTWRITE does: PTW. Tracing must be off, because a decoder binds values to
    /// PTWRITE instructions while it is on.
    pub fn value(&mut self, value: u64) {
        self.flush();
        self.stamp();
        let value = u32::try_from(value).map_or(Payload::Eight(value), Payload::Four);
        Packet::Ptw { value, ip: false }.write_to(&mut self.out);
    }

    /// Leaves user code by the last instruction (a far transfer such as SYSCALL): TIP.PGD.
    pub fn disable(&mut self) {
        self.flush();
        self.stamp();
        self.tracing_off();
    }

    /// Leaves user code by an event (signal, fault, detach) before the instruction at `ip`
    /// executed: FUP, TIP.PGD.
    pub fn disable_async(&mut self, ip: Avma) {
        self.flush();
        self.stamp();
        self.ip_packet(opcode::FUP, ip);
        self.tracing_off();
    }

    /// Writes TIP.PGD and CYC. Without a time after it, the decoder could not distinguish an exit
    /// just now from an exit shortly before the next packet.
    fn tracing_off(&mut self) {
        Packet::TipPgd(IpPayload::Suppressed).write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.off(&mut self.out);
        }
    }

    /// Writes branches until a PSB is due or `write` returns.
    #[inline]
    pub fn branches<T>(&mut self, write: impl FnOnce(&mut Branches<'_>) -> T) -> T {
        /// The minimum number of bytes at a time, if no PSB can be written.
        const AT_LEAST: usize = 64;
        let until = self.psb_at.max(self.out.len() + AT_LEAST);
        self.branches_until(until, write)
    }

    #[inline]
    fn branches_until<T>(&mut self, until: usize, write: impl FnOnce(&mut Branches<'_>) -> T) -> T {
        self.stamp();
        let end = self.out.len();
        self.out.resize(Branches::room(until), 0);
        let mut branches = Branches::new(&mut self.out, end, until, self.state.take());
        let result = write(&mut branches);
        let Branches { end, state, .. } = branches;
        self.state = state;
        self.out.truncate(end);
        result
    }

    /// Writes one event.
    fn branch(&mut self, write: impl FnOnce(&mut Branches<'_>)) {
        self.branches_until(self.out.len() + 1, write);
    }

    /// Adds a conditional branch.
    pub fn conditional(&mut self, taken: bool) {
        self.branch(|branches| branches.conditionals(u64::from(taken), 1));
    }

    /// Adds the outcomes of conditional branches, as [`Branches::conditionals`] does.
    pub fn conditionals(&mut self, outcomes: u64, count: u8) {
        self.branch(|branches| branches.conditionals(outcomes, count));
    }

    /// Adds a near call to `target` with return address `next`. An indirect call is followed by
    /// [`Self::indirect`].
    ///
    /// A direct call of the next instruction (`direct` and `target == next`) only reads the
    /// instruction pointer. No return matches it.
    pub fn call(&mut self, next: Avma, target: Avma, direct: bool) {
        if !(direct && target == next) {
            self.branch(|branches| branches.call(next));
        }
    }

    /// Adds an indirect jump or call to `target`.
    pub fn indirect(&mut self, target: Avma) {
        self.branch(|branches| branches.indirect(target));
    }

    /// Adds a near return to `target`.
    pub fn near_return(&mut self, target: Avma) {
        self.branch(|branches| {
            if !branches.compressed_return(target) {
                branches.indirect(target);
            }
        });
    }

    /// Records lost packets. Pending outcomes are lost too. `ip` is the next instruction, if
    /// tracing is enabled.
    pub fn overflow(&mut self, ip: Option<Avma>) {
        (self.state.pending, self.state.pending_len) = (0, 0);
        self.forget_returns();
        Packet::Ovf.write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.on();
            clock.resync(&mut self.out);
        }
        // libipt resets the last IP here, so the first IP is full.
        self.state.last_ip.reset();
        if let Some(ip) = ip {
            let _ = self.state.last_ip.decode(IpPayload::Full(ip.0));
            Packet::Fup(IpPayload::Full(ip.0)).write_to(&mut self.out);
        }
    }

    /// Writes the pending outcomes.
    pub fn flush(&mut self) {
        if self.state.pending_len != 0 {
            self.branch(|branches| branches.flush());
        }
    }

    /// Returns the bytes written since the last call, including pending outcomes.
    ///
    /// If [`Self::psb`] follows, the next bytes begin with a PSB.
    pub fn take(&mut self) -> Vec<u8> {
        self.take_for(Vec::new())
    }

    /// Returns what [`Self::take`] returns, and continues in the memory of `room`, whose content is
    /// dropped.
    pub fn take_for(&mut self, mut room: Vec<u8>) -> Vec<u8> {
        self.flush();
        self.stamp();
        room.clear();
        let bytes = std::mem::replace(&mut self.out, room);
        self.taken += bytes.len() as u64;
        self.psb_at = self.psb_at.saturating_sub(bytes.len());
        bytes
    }

    /// Returns the total number of bytes written, including those taken. Pending outcomes do not
    /// count.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.taken + self.waiting() as u64
    }

    /// Returns the number of bytes that were not taken yet.
    #[must_use]
    #[inline]
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    fn ip_packet(&mut self, opcode: u8, ip: Avma) {
        self.branch(|branches| branches.ip_packet(opcode, ip));
    }

    /// Writes a CYC, which dates the next packet.
    #[inline]
    fn stamp(&mut self) {
        if std::mem::take(&mut self.stale)
            && let Some(clock) = &mut self.clock
        {
            clock.stamp(&mut self.out);
        }
    }

    fn forget_returns(&mut self) {
        if let Some(returns) = &mut self.state.returns {
            returns.clear();
        }
    }
}

#[cfg(test)]
mod tests;
