//! Control-flow facts to packets: what the tracing hardware does, for a recorder without it.
//!
//! The stream is that of user-only tracing of 64-bit code: a system call leaves it by TIP.PGD and comes
//! back by MODE.Exec and TIP.PGE. libipt decodes it. Source: SDM volume 3, "Intel Processor Trace".
//!
//! The caller says what happened, in order: [`Encoder::start`], [`Encoder::enable`], then branches, and
//! [`Encoder::disable`] or [`Encoder::disable_async`] whenever user code is left. Between two
//! instructions it asks [`Encoder::psb_due`] and answers with [`Encoder::psb`].

mod branches;
mod clock;
mod returns;

use crate::packet::{ExecMode, IpPayload, Packet};
use crate::wire::opcode;
use crate::{Avma, TimingParams, Tsc};
use branches::BranchState;
pub use branches::Branches;
use clock::PacketClock;

/// How an [`Encoder`] writes.
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// Bytes between two PSB packets, about: `IA32_RTIT_CTL.PSBFreq`.
    pub psb_period: usize,
    /// Compress matching returns to a TNT bit: `IA32_RTIT_CTL.DisRETC` = 0.
    pub compress_returns: bool,
    /// Gather up to 47 outcomes in a long TNT, as some processors do. Short ones, of 6, are never longer
    /// in all.
    pub long_tnt: bool,
    /// Which time packets, if any.
    pub timing: Option<TimingOptions>,
}

impl Default for EncoderOptions {
    /// PSB every 2 KiB, compressed returns, short TNT, no time.
    fn default() -> Self {
        Self {
            psb_period: 2048,
            compress_returns: true,
            long_tnt: false,
            timing: None,
        }
    }
}

/// Which packets tell the time: TSC at each PSB always, and these.
#[derive(Clone, Copy, Debug)]
pub struct TimingOptions {
    /// Relation of the clocks; a decoder must be given the same.
    ///
    /// The cycle counter ticks as the TSC does: CBR says `nom_freq`. The crystal clock is
    /// TSC × `cpuid_15h_eax` / `cpuid_15h_ebx`, a whole number of ticks ≤ 512, and 0 when not `mtc`.
    pub params: TimingParams,
    /// Write MTC (and TMA): a time at least every 2^`mtc_freq` crystal ticks.
    pub mtc: bool,
    /// Write CYC: a time at every packet.
    pub cyc: bool,
}

/// Writes a packet stream.
#[derive(Debug)]
pub struct Encoder {
    out: Vec<u8>,
    /// Bytes handed out by [`Encoder::take`].
    taken: u64,
    /// Length of `out` at which a PSB is due.
    psb_at: usize,
    psb_period: usize,
    state: BranchState,
    clock: Option<PacketClock>,
    /// The time has moved since a packet told it.
    stale: bool,
}

impl Encoder {
    /// An empty stream; [`Self::start`] begins it.
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

    /// Tells the time; it must not run backward (if it does, it stands still).
    ///
    /// Once per instruction is best: it writes the MTC packets that have become due.
    pub fn set_time(&mut self, now: Tsc) {
        if self.clock.as_ref().is_some_and(|clock| clock.mtc_due(now)) {
            // The outcomes that wait are of before.
            self.flush();
        }
        if let Some(clock) = &mut self.clock {
            clock.advance(now, &mut self.out);
            self.stale = true;
        }
    }

    /// PSB+ before anything else: tracing is not enabled yet.
    pub fn start(&mut self) {
        self.sync_point(None);
    }

    /// Whether the stream has grown by the period since the last PSB.
    #[must_use]
    #[inline]
    pub fn psb_due(&self) -> bool {
        self.out.len() >= self.psb_at
    }

    /// PSB+ while enabled, before the instruction at `ip` runs.
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

    /// User code goes on at `ip`: MODE.Exec, TIP.PGE.
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

    /// The last instruction left user code by itself (a far transfer such as SYSCALL): TIP.PGD.
    pub fn disable(&mut self) {
        self.flush();
        self.stamp();
        self.tracing_off();
    }

    /// An event (signal, fault, detach) took control away before the instruction at `ip` ran: FUP,
    /// TIP.PGD.
    pub fn disable_async(&mut self, ip: Avma) {
        self.flush();
        self.stamp();
        self.ip_packet(opcode::FUP, ip);
        self.tracing_off();
    }

    /// TIP.PGD, and CYC: without a time behind it, one that left user code just now and one that left before the next
    /// packet would be the same, for the time of a packet is only known not to be before the one that came last.
    fn tracing_off(&mut self) {
        Packet::TipPgd(IpPayload::Suppressed).write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.off(&mut self.out);
        }
    }

    /// Writes branches, many of them, until a PSB is due or `write` has no more.
    #[inline]
    pub fn branches<T>(&mut self, write: impl FnOnce(&mut Branches<'_>) -> T) -> T {
        /// Where no PSB can be written, so much at a time.
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

    /// One event.
    fn branch(&mut self, write: impl FnOnce(&mut Branches<'_>)) {
        self.branches_until(self.out.len() + 1, write);
    }

    /// A conditional branch.
    pub fn conditional(&mut self, taken: bool) {
        self.branch(|branches| branches.conditionals(u64::from(taken), 1));
    }

    /// The outcomes of conditional branches: [`Branches::conditionals`].
    pub fn conditionals(&mut self, outcomes: u64, count: u8) {
        self.branch(|branches| branches.conditionals(outcomes, count));
    }

    /// A near call to `target`, whose return address is `next`. An indirect one: [`Self::indirect`] as
    /// well, after.
    ///
    /// A direct call of the next instruction (`direct` and `target == next`) only reads the instruction
    /// pointer; no return matches it.
    pub fn call(&mut self, next: Avma, target: Avma, direct: bool) {
        if !(direct && target == next) {
            self.branch(|branches| branches.call(next));
        }
    }

    /// An indirect jump or call went to `target`.
    pub fn indirect(&mut self, target: Avma) {
        self.branch(|branches| branches.indirect(target));
    }

    /// A near return went to `target`.
    pub fn near_return(&mut self, target: Avma) {
        self.branch(|branches| {
            if !branches.compressed_return(target) {
                branches.indirect(target);
            }
        });
    }

    /// Packets were lost. Outcomes not written yet are lost too; `ip`, the instruction that runs next,
    /// when enabled.
    pub fn overflow(&mut self, ip: Option<Avma>) {
        (self.state.pending, self.state.pending_len) = (0, 0);
        self.forget_returns();
        Packet::Ovf.write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.on();
            clock.resync(&mut self.out);
        }
        // libipt forgets the last IP here: the first one is told in full.
        self.state.last_ip.reset();
        if let Some(ip) = ip {
            let _ = self.state.last_ip.decode(IpPayload::Full(ip.0));
            Packet::Fup(IpPayload::Full(ip.0)).write_to(&mut self.out);
        }
    }

    /// Writes the outcomes that wait for more.
    pub fn flush(&mut self) {
        if self.state.pending_len != 0 {
            self.branch(|branches| branches.flush());
        }
    }

    /// Takes the bytes written since the last call, waiting outcomes included.
    ///
    /// [`Self::psb`] right after it begins the next bytes with PSB.
    pub fn take(&mut self) -> Vec<u8> {
        self.take_for(Vec::new())
    }

    /// [`Self::take`], going on in the memory of `room`, whose content is dropped.
    pub fn take_for(&mut self, mut room: Vec<u8>) -> Vec<u8> {
        self.flush();
        self.stamp();
        room.clear();
        let bytes = std::mem::replace(&mut self.out, room);
        self.taken += bytes.len() as u64;
        self.psb_at = self.psb_at.saturating_sub(bytes.len());
        bytes
    }

    /// Bytes written in all, those taken included; waiting outcomes are not.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.taken + self.waiting() as u64
    }

    /// Bytes that wait to be taken.
    #[must_use]
    #[inline]
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    fn ip_packet(&mut self, opcode: u8, ip: Avma) {
        self.branch(|branches| branches.ip_packet(opcode, ip));
    }

    /// CYC, which gives its time to the packet after it.
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
