//! Control-flow facts to packets: what the tracing hardware does, for a recorder without it.
//!
//! The stream is that of user-only tracing of 64-bit code: a system call leaves it by TIP.PGD and comes
//! back by MODE.Exec and TIP.PGE. libipt decodes it. Source: SDM volume 3, "Intel Processor Trace".
//!
//! The caller says what happened, in order: [`Encoder::start`], [`Encoder::enable`], then branches, and
//! [`Encoder::disable`] or [`Encoder::disable_async`] whenever user code is left. Between two
//! instructions it asks [`Encoder::psb_due`] and answers with [`Encoder::psb`].

mod clock;
mod returns;

use crate::packet::{ExecMode, IpPayload, Packet, Tnt};
use crate::{Avma, LastIp, TimingParams, Tsc};
use clock::PacketClock;
use returns::ReturnStack;

/// How an [`Encoder`] writes.
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// Bytes between two PSB packets, about: `IA32_RTIT_CTL.PSBFreq`.
    pub psb_period: usize,
    /// Compress matching returns to a TNT bit: `IA32_RTIT_CTL.DisRETC` = 0.
    pub compress_returns: bool,
    /// Which time packets, if any.
    pub timing: Option<TimingOptions>,
}

impl Default for EncoderOptions {
    /// PSB every 2 KiB, compressed returns, no time.
    fn default() -> Self {
        Self {
            psb_period: 2048,
            compress_returns: true,
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
    /// Stream offset of the last PSB.
    last_psb: u64,
    psb_period: u64,
    last_ip: LastIp,
    /// Outcomes not written yet, the oldest highest.
    pending: u64,
    pending_len: u8,
    returns: Option<ReturnStack>,
    clock: Option<PacketClock>,
}

impl Encoder {
    /// An empty stream; [`Self::start`] begins it.
    #[must_use]
    pub fn new(options: EncoderOptions) -> Self {
        Self {
            out: Vec::new(),
            taken: 0,
            last_psb: 0,
            psb_period: options.psb_period as u64,
            last_ip: LastIp::default(),
            pending: 0,
            pending_len: 0,
            returns: options.compress_returns.then(ReturnStack::default),
            clock: options.timing.map(PacketClock::new),
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
        }
    }

    /// PSB+ before anything else: tracing is not enabled yet.
    pub fn start(&mut self) {
        self.sync_point(None);
    }

    /// Whether the stream has grown by the period since the last PSB.
    #[must_use]
    pub fn psb_due(&self) -> bool {
        self.written() - self.last_psb >= self.psb_period
    }

    /// PSB+ while enabled, before the instruction at `ip` runs.
    pub fn psb(&mut self, ip: Avma) {
        self.sync_point(Some(ip));
    }

    fn sync_point(&mut self, ip: Option<Avma>) {
        self.flush();
        self.stamp();
        self.forget_returns();
        self.last_ip.reset();
        self.last_psb = self.written();
        Packet::Psb.write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.header(&mut self.out);
        }
        Packet::ModeExec(ExecMode::LONG).write_to(&mut self.out);
        if let Some(ip) = ip {
            self.ip_packet(Packet::Fup, ip);
        }
        Packet::PsbEnd.write_to(&mut self.out);
    }

    /// User code goes on at `ip`: MODE.Exec, TIP.PGE.
    pub fn enable(&mut self, ip: Avma) {
        self.flush();
        self.forget_returns();
        self.stamp();
        Packet::ModeExec(ExecMode::LONG).write_to(&mut self.out);
        self.ip_packet(Packet::TipPge, ip);
    }

    /// The last instruction left user code by itself (a far transfer such as SYSCALL): TIP.PGD.
    pub fn disable(&mut self) {
        self.flush();
        self.stamp();
        Packet::TipPgd(IpPayload::Suppressed).write_to(&mut self.out);
    }

    /// An event (signal, fault, detach) took control away before the instruction at `ip` ran: FUP,
    /// TIP.PGD.
    pub fn disable_async(&mut self, ip: Avma) {
        self.flush();
        self.stamp();
        self.ip_packet(Packet::Fup, ip);
        Packet::TipPgd(IpPayload::Suppressed).write_to(&mut self.out);
    }

    /// A conditional branch.
    pub fn conditional(&mut self, taken: bool) {
        self.pending = self.pending << 1 | u64::from(taken);
        self.pending_len += 1;
        if self.pending_len >= Tnt::MAX_LEN {
            self.flush();
        }
    }

    /// The outcomes of `count` conditional branches (64 at most): the low bits of `outcomes`, the oldest
    /// highest.
    #[inline]
    pub fn conditionals(&mut self, outcomes: u64, count: u8) {
        let room = Tnt::MAX_LEN - self.pending_len;
        if count < room {
            self.pending = self.pending << count | outcomes;
            self.pending_len += count;
        } else {
            for bit in (0..count).rev() {
                self.conditional(outcomes >> bit & 1 != 0);
            }
        }
    }

    /// A near call to `target`, whose return address is `next`. An indirect one: [`Self::indirect`] as
    /// well, after.
    ///
    /// A direct call of the next instruction (`direct` and `target == next`) only reads the instruction
    /// pointer; no return matches it.
    pub fn call(&mut self, next: Avma, target: Avma, direct: bool) {
        if let Some(returns) = &mut self.returns
            && !(direct && target == next)
        {
            returns.push(next);
        }
    }

    /// An indirect jump or call went to `target`.
    pub fn indirect(&mut self, target: Avma) {
        self.flush();
        self.stamp();
        self.ip_packet(Packet::Tip, target);
    }

    /// A near return went to `target`.
    pub fn near_return(&mut self, target: Avma) {
        if self
            .returns
            .as_mut()
            .is_some_and(|returns| returns.matches(target))
        {
            self.conditional(true);
        } else {
            self.indirect(target);
        }
    }

    /// Packets were lost. Outcomes not written yet are lost too; `ip`, the instruction that runs next,
    /// when enabled.
    pub fn overflow(&mut self, ip: Option<Avma>) {
        (self.pending, self.pending_len) = (0, 0);
        self.forget_returns();
        Packet::Ovf.write_to(&mut self.out);
        if let Some(clock) = &mut self.clock {
            clock.resync(&mut self.out);
        }
        // libipt forgets the last IP here: the first one is told in full.
        self.last_ip.reset();
        if let Some(ip) = ip {
            let _ = self.last_ip.decode(IpPayload::Full(ip.0));
            Packet::Fup(IpPayload::Full(ip.0)).write_to(&mut self.out);
        }
    }

    /// Writes the outcomes that wait for more.
    pub fn flush(&mut self) {
        let Some(tnt) = Tnt::new(self.pending, self.pending_len) else {
            return;
        };
        self.stamp();
        (self.pending, self.pending_len) = (0, 0);
        let short = tnt.len() <= Tnt::MAX_SHORT_LEN;
        if short {
            Packet::TntShort(tnt)
        } else {
            Packet::TntLong(tnt)
        }
        .write_to(&mut self.out);
    }

    /// Takes the bytes written since the last call, waiting outcomes included.
    ///
    /// [`Self::psb`] right after it begins the next bytes with PSB.
    pub fn take(&mut self) -> Vec<u8> {
        self.flush();
        self.stamp();
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// Bytes written in all, those taken included; waiting outcomes are not.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    fn ip_packet(&mut self, packet: fn(IpPayload) -> Packet, ip: Avma) {
        packet(self.last_ip.encode(ip)).write_to(&mut self.out);
    }

    /// CYC, which gives its time to the packet after it.
    fn stamp(&mut self) {
        if let Some(clock) = &mut self.clock {
            clock.stamp(&mut self.out);
        }
    }

    fn forget_returns(&mut self) {
        if let Some(returns) = &mut self.returns {
            returns.clear();
        }
    }
}

#[cfg(test)]
mod tests;
